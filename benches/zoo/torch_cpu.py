"""A network of the zoo on the CPU in PyTorch: how long a training step takes, in what memory, and the first losses.

    python benches/zoo/torch_cpu.py NAME VARIANT SECONDS

A variant is words joined by dashes: `eager` or `compile`, and `nchw` for images whose channels are not neighbours. Networks are
those of `crates/plimsoll/tests/reference/networks.py`, at the sizes of `crates/plimsoll/benches/zoo.rs`, and inputs those of
`cpu.json`. Numbers follow from their names, so both begin with the same loss. Parameters are stored in the layouts that
oneDNN's kernels take without reordering. Adam's fused kernel updates them. Prints one line of JSON.
"""

import json
import math
import os
import sys
import time
from pathlib import Path

THREADS = 2

# Before anything with a thread pool is imported: pools are as large as the cores that the process may use.
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = str(THREADS)

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "crates" / "plimsoll" / "tests" / "reference"))

import formula  # noqa: E402
import networks as nets  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

# What the reference files are made with, and this is not.
torch.set_num_threads(THREADS)
torch.set_default_dtype(torch.float32)

WARM_UP = 3
VOCAB = 8000


V2 = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
B0 = [(1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3), (6, 5, 1, 112, 3), (6, 5, 2, 192, 4), (6, 3, 1, 320, 1)]
V3 = [
    (16, 16, 3, 1, 0, F.relu), (64, 24, 3, 2, 0, F.relu), (72, 24, 3, 1, 0, F.relu), (72, 40, 5, 2, 24, F.relu),
    (120, 40, 5, 1, 32, F.relu), (120, 40, 5, 1, 32, F.relu), (240, 80, 3, 2, 0, F.hardswish), (200, 80, 3, 1, 0, F.hardswish),
    (184, 80, 3, 1, 0, F.hardswish), (184, 80, 3, 1, 0, F.hardswish), (480, 112, 3, 1, 120, F.hardswish),
    (672, 112, 3, 1, 168, F.hardswish), (672, 160, 5, 2, 168, F.hardswish), (960, 160, 5, 1, 240, F.hardswish),
    (960, 160, 5, 1, 240, F.hardswish),
]  # fmt: skip
GOOGLENET = [
    [(64, (96, 128), (16, 32), 32), (128, (128, 192), (32, 96), 64)],
    [
        (192, (96, 208), (16, 48), 64), (160, (112, 224), (24, 64), 64), (128, (128, 256), (24, 64), 64),
        (112, (144, 288), (32, 64), 64), (256, (160, 320), (32, 128), 128),
    ],
    [(256, (160, 320), (32, 128), 128), (384, (192, 384), (48, 128), 128)],
]  # fmt: skip


def inverted(rows, activation, squeeze):
    """Blocks of rows of an expansion, a window, a stride, a width, and how many there are."""
    blocks, width = [], 32
    for expand, window, stride, outside, count in rows:
        for at in range(count):
            blocks.append((width * expand, outside, window, 1 if at else stride, width // 4 if squeeze else 0, activation))
            width = outside
    return blocks


def mobilenet_v2(p, x):
    rows = [(expand, 3, stride, outside, count) for expand, outside, count, stride in V2]
    return nets.mobilenet(p, x, 32, inverted(rows, F.relu6, False), 1280, None, F.relu6, classes=100)


def mobilenet_v3(p, x):
    return nets.mobilenet(p, x, 16, V3, 960, 1280, F.hardswish, F.relu, F.hardsigmoid, classes=100)


def efficientnet(p, x):
    blocks = inverted(B0, F.silu, True)
    return nets.mobilenet(p, x, 32, blocks, 1280, None, F.silu, F.silu, torch.sigmoid, classes=100)


def unet(upsampling):
    return nets.classes(lambda p, x: nets.unet(p, x, upsampling, [32, 64, 128]))


TABLES = [100_000, 50_000, 20_000, 10_000, 5000, 1000, 500, 100]


def recommender(p, x, i, y):
    logits = nets.recommender(p, x, i, TABLES, 32, [256, 128], [256, 128])
    return F.binary_cross_entropy_with_logits(logits, y.float())


IMAGE_CLASSES = {
    "resnet18": lambda p, x: nets.resnet(p, x, [2, 2, 2, 2], 64, classes=100),
    "resnet50": lambda p, x: nets.resnet(p, x, [3, 4, 6, 3], 64, True, classes=100),
    "resnext50": lambda p, x: nets.resnet(p, x, [3, 4, 6, 3], 64, True, 32, 4, classes=100),
    "vgg": lambda p, x: nets.vgg(p, x, [(1, 64), (1, 128), (2, 256), (2, 512)], 512, False, classes=100),
    "densenet": lambda p, x: nets.densenet(p, x, [6, 12, 24, 16], 32, 64, classes=100),
    "googlenet": lambda p, x: nets.inception(p, x, (64, 64, 192), GOOGLENET, classes=100),
    "mobilenet_v2": mobilenet_v2,
    "mobilenet_v3": mobilenet_v3,
    "efficientnet": efficientnet,
    "convnext": lambda p, x: nets.convnext(p, x, [2, 2, 6, 2], [40, 80, 160, 320], classes=100),
    "vit": lambda p, x: nets.vit(p, x, 8, 6, 192, 3, classes=100),
    "mixer": lambda p, x: nets.mixer(p, x, 8, 6, 256, 128, 1024, classes=100),
}
T5 = {"width": 256, "vocab": VOCAB, "layers": 2, "heads": 4, "hidden": 1024, "buckets": 32, "farthest": 128}
NETWORKS = {name: nets.classes(network) for name, network in IMAGE_CLASSES.items()} | {
    "unet_nearest": unet("nearest"),
    "unet_bilinear": unet("bilinear"),
    "unet_transposed": unet("transposed"),
    "deeplab": nets.classes(lambda p, x: nets.deeplab(p, x, 64, 4, [6, 12, 18], 21)),
    "unet3d": nets.classes(lambda p, x: nets.unet3d(p, x, [16, 32], 4)),
    "dcgan": nets.squares(lambda p, z: nets.generator(p, z, 64, 4)),
    "autoencoder": lambda p, x: nets.autoencoder(p, x, [32, 64, 128], 128),
    "diffusion": nets.squares(lambda p, x, t: nets.diffusion(p, x, t, [64, 128, 128], 32, 4)),
    "gpt2": nets.classes(lambda p, x: nets.gpt(p, x, 4, 256, 4, 128, VOCAB)),
    "llama": nets.classes(lambda p, x: nets.llama(p, x, 4, 256, 8, 2, 688, VOCAB)),
    "bert": nets.classes(lambda p, x, n: nets.bert(p, x, n, 4, 256, 4, 1024, 128, VOCAB)),
    "t5": nets.classes(lambda p, x, source: nets.t5(p, source, x, **T5)),
    "lstm": nets.classes(lambda p, x: nets.language(p, x, 4, 2, 256, VOCAB)),
    "gru": nets.classes(lambda p, x: nets.language(p, x, 3, 2, 256, VOCAB)),
    "seq2seq": nets.classes(lambda p, x, source, n: nets.seq2seq(p, x, source, n, 256, VOCAB, VOCAB)),
    "wavenet": nets.classes(lambda p, x: nets.wavenet(p, x, 256, 64, 8, 2)),
    "recommender": recommender,
    "pinn": lambda p, x, y: nets.pinn(p, x, y, 4, 128),
    "experts": nets.squares(lambda p, x: nets.experts(p, x, 8, 2, 512)),
}


class Stored:
    """Parameters by name, each stored as PyTorch likes it best and shown in Plimsoll's layout."""

    def __init__(self, channels_last):
        self.made, self.channels_last = {}, channels_last

    def __call__(self, name, *shape):
        if name not in self.made:
            self.made[name] = self.stored(name, formula.first_value(name, shape).float()).requires_grad_()
        value = self.made[name]
        if name.endswith("/filter"):
            return value.movedim((0, 1), (-1, -2))
        return value.t() if name.endswith("weight") else value

    def stored(self, name, value):
        if name.endswith("/filter"):
            value = value.movedim((-1, -2), (0, 1)).contiguous()
            last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(value.dim())
            return value.contiguous(memory_format=last) if last and self.channels_last else value
        return value.t().contiguous() if name.endswith("weight") else value


def inputs(name, channels_last):
    made = {}
    for key, of in json.loads((HERE / "cpu.json").read_text())[name].items():
        called, shape = f"{name}/{key}", of["shape"]
        if "below" in of:
            made[key] = formula.integers(called, of["below"], *shape)
            continue
        value = formula.numbers(called, *shape).float()
        if len(shape) > 3 and not channels_last:
            value = value.movedim(-1, 1).contiguous().movedim(1, -1)
        made[key] = value
    return made


def memory(field):
    """A line of this process's status, in bytes."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(field + ":"))


def main():
    name, variant, seconds = sys.argv[1], sys.argv[2].split("-"), float(sys.argv[3])
    channels_last = "nchw" not in variant
    given, loss_of, p = inputs(name, channels_last), NETWORKS[name], Stored(channels_last)
    start = memory("VmRSS")
    with torch.set_grad_enabled(name == "pinn"):
        loss_of(p, **given)
    # Making the first weights is not training.
    Path("/proc/self/clear_refs").write_text("5")
    optimizer = torch.optim.Adam(list(p.made.values()), lr=1e-4, fused=True)
    if "compile" in variant:
        loss_of = torch.compile(loss_of)

    def step():
        optimizer.zero_grad()
        loss = loss_of(p, **given)
        loss.backward()
        optimizer.step()
        return loss.item()

    begin = time.perf_counter()
    losses, times = [step()], []
    first = time.perf_counter() - begin
    losses += [step() for _ in range(WARM_UP - 1)]
    begin = time.perf_counter()
    while len(times) < 5 or time.perf_counter() - begin < seconds:
        before = time.perf_counter()
        step()
        times.append(time.perf_counter() - before)
    times.sort()
    at = lambda part: times[round((len(times) - 1) * part)]  # noqa: E731
    result = {
        "median_s": at(0.5),
        "spread": [at(0.1), at(0.9)],
        "steps": len(times),
        "first_step_s": first,
        "losses": losses,
        "parameters": sum(math.prod(value.shape) for value in p.made.values()),
        "peak_rss_over_start_bytes": memory("VmHWM") - start,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
