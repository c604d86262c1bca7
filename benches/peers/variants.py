"""Which workloads are compared, and in which ways each peer runs them."""

# Letter, name, steps that are measured.
WORKLOADS = [
    ("a", "mlp-small", 1000),
    ("b", "mlp-wide", 20),
    ("c", "cnn-small", 30),
    ("d", "gpt-small", 20),
    ("e", "gpt-varlen", 200),
]

# Budgets that Plimsoll also runs a workload within: its answer where the step as it is takes more than half of the best
# peer's memory.
BUDGETS = {"cnn-small": "64MiB", "gpt-varlen": "144MiB"}

# The workload whose steps differ in length. The time of all of them counts, compilation included.
VARYING = "gpt-varlen"

_FIXED = {
    "torch": ["eager", "compile", "compile-autotuned"],
    "tensorflow": ["function", "xla"],
    "jax": ["jit"],
}
_VARYING = {
    "torch": ["eager", "compile"],
    "tensorflow": ["signature", "xla-buckets", "eager"],
    "jax": ["jit-buckets"],
}
PEERS = list(_FIXED)


def variants(peer, workload):
    """How a peer runs a workload."""
    return (_VARYING if workload == VARYING else _FIXED)[peer]
