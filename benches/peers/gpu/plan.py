"""What is compared on the GPU: workloads, steps, and the ways in which each peer runs them.

A variant's name is what is done, in words that the peers' scripts look for. See README.md in the folder above.
"""

# Steps of a block, at whose end alone a peer waits for the device, and blocks that are measured. Where shapes vary, all
# steps are one block.
BLOCKS = 12
STEPS = {"gpt2-124m": 10, "resnet50": 10, "mlp-large": 10, "mlp-small": 500, "gpt2-varlen": 300}

# Steps of `plimsoll bench`, which times each.
PLIMSOLL_STEPS = {"gpt2-124m": 100, "resnet50": 100, "mlp-large": 100, "mlp-small": 2000, "gpt2-varlen": 300}

# Budgets that Plimsoll also runs a workload within.
BUDGETS = {"gpt2-124m": ["5GiB", "3GiB"], "resnet50": ["8GiB"]}

VARIANTS = {
    "gpt2-124m": {
        "torch": [
            "eager",
            "eager-cast",
            "compile",
            "compile-cast-padded",
            "compile-cast-padded-autotuned",
            "compile-cast-padded-graphs",
        ],
        "jax": ["jit-cudnn", "jit-xla"],
    },
    "resnet50": {"torch": ["eager", "compile", "compile-autotuned", "compile-graphs"], "jax": ["jit"]},
    "mlp-large": {"torch": ["eager", "compile", "compile-autotuned", "compile-graphs"], "jax": ["jit"]},
    "mlp-small": {"torch": ["eager", "compile", "compile-graphs", "captured"], "jax": ["jit"]},
    "gpt2-varlen": {
        "torch": ["eager", "eager-expandable", "compile-dynamic-expandable"],
        "jax": ["jit-cudnn-buckets"],
    },
}
WORKLOADS = list(VARIANTS)
