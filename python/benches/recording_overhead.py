"""What recording PyTorch's allocator costs: a training step of GPT-2 on a GPU, with and without it, in turns.

    python benches/recording_overhead.py                # GPT-2 124M, 16 sequences of 1,024 tokens, bf16

Needs PyTorch with a GPU and the package `plimsoll`. Blocks of steps with recording and without follow one another, so that
a clock or a temperature that drifts meets both alike; each block begins with steps that do not count. Prints one JSON
object: the medians, their ratio (the goal is at most 1.02), requests a step, and the host's memory for the history.
"""

import argparse
import json
import resource
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F

from plimsoll._torch import HISTORY_ENTRIES, Recorder

VOCABULARY = 50257


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.attend(self.norm_1(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.project(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, layers, width, heads, length):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.tokens.weight.T


def training(device, layers, width, heads, batch, length):
    """A function that does one step."""
    model = Gpt(layers, width, heads, length).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(VOCABULARY, (batch, length + 1), device=device)

    def step():
        with torch.autocast(device, dtype=torch.bfloat16):
            logits = model(tokens[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return step


def seconds(step, count, warm_up=3):
    """The times of so many steps."""
    times = []
    for index in range(warm_up + count):
        start = time.perf_counter()
        step()
        if index >= warm_up:
            times.append(time.perf_counter() - start)
    return times


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--steps", type=int, default=20, help="steps of a block")
    arguments.add_argument("--blocks", type=int, default=6, help="blocks with recording, and as many without")
    arguments.add_argument("--batch", type=int, default=16)
    arguments = arguments.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("this needs a GPU: only there is anything recorded")
    step = training("cuda", 12, 768, 12, arguments.batch, 1024)
    times = {True: [], False: []}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    requests = torch.cuda.memory_stats()["allocation.all.allocated"]
    for block in range(2 * arguments.blocks):
        is_recorded = block % 2 == 1
        recorder = Recorder(lambda: None)
        if is_recorded:
            recorder.attach(torch)
            assert recorder.recording, recorder.trouble
        times[is_recorded] += seconds(step, arguments.steps)
        recorder.stop()
    total = 2 * arguments.blocks * (arguments.steps + 3)
    with_it, without = statistics.median(times[True]), statistics.median(times[False])
    result = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "entries": HISTORY_ENTRIES,
        "step_ms_without": round(1e3 * without, 3),
        "step_ms_recorded": round(1e3 * with_it, 3),
        "ratio": round(with_it / without, 4),
        "requests_a_step": round((torch.cuda.memory_stats()["allocation.all.allocated"] - requests) / total),
        "host_memory_mib": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10,
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
