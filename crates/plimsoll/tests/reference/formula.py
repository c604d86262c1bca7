"""Numbers that follow from a name and a position, the same here and in `tests/common/formula.rs`.

Reference files then hold results alone, not the weights and inputs they are of.
"""

import json
import math
import re
from pathlib import Path

import numpy as np
import torch

HERE = Path(__file__).parent

torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)


def uniform(name, count):
    """Evenly in [-1, 1), by a hash of the name (FNV-1a) and of each position (the finisher of MurmurHash3)."""
    key = 2166136261
    for byte in name.encode():
        key = (key ^ byte) * 16777619 % 2**32
    x = np.arange(count, dtype=np.uint32) * np.uint32(0x9E3779B1) + np.uint32(key)
    for shift, factor in (16, 0x85EBCA6B), (13, 0xC2B2AE35):
        x = (x ^ (x >> np.uint32(shift))) * np.uint32(factor)
    x ^= x >> np.uint32(16)
    return (x >> np.uint32(8)) / 2**23 - 1.0


def tensor(values, shape):
    """As float32 holds them, in float64."""
    return torch.from_numpy(np.asarray(values, np.float32).astype(np.float64)).reshape(shape)


def numbers(name, *shape):
    return tensor(2.0 * uniform(name, math.prod(shape)), shape)


def integers(name, below, *shape):
    return torch.from_numpy(np.floor((uniform(name, math.prod(shape)) + 1) / 2 * below).astype(np.int64)).reshape(shape)


def first_value(name, shape):
    """The first value of a parameter."""
    u, last = uniform(name, math.prod(shape)), name.split("/")[-1]
    if last == "gamma":
        values = 1 + 0.2 * u
    elif len(shape) == 1:
        values = 0.2 * u
    else:
        values = u * math.sqrt(3 / math.prod(shape[:-1]))
    return tensor(values, shape)


class Parameters:
    """Parameters by name: each is made when it is first asked for."""

    def __init__(self):
        self.made = {}

    def __call__(self, name, *shape):
        if name not in self.made:
            self.made[name] = first_value(name, shape).requires_grad_()
        assert self.made[name].shape == shape, f"{name}: {shape}"
        return self.made[name]


def checksum(name, value):
    """How long an array is, and how far it reaches in a direction that follows from its name."""
    value = value.detach().reshape(-1)
    along = torch.from_numpy(uniform(name, value.numel()))
    return [float(f"{number:.9g}") for number in (value.norm().item(), (value * along).sum().item())]


def write(name, content):
    text = json.dumps({"torch": torch.__version__} | content, indent=1)
    # A list or an object that holds nothing but numbers and words goes on one line.
    text = re.sub(r"[\[{][^\[\]{}]*[\]}]", lambda match: re.sub(r"\s*\n\s*", " ", match.group()), text)
    (HERE / f"{name}.json").write_text(text + "\n")
