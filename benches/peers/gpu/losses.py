"""Trains in PyTorch from Plimsoll's first weights on Plimsoll's batches, and compares the losses of each step.

    plimsoll train gpt2-124m --device cuda:0 --steps 100 --out runs/gpt2
    python losses.py gpt2-124m --steps 100 --out losses.json --compare runs/gpt2/run.json

Parameters, gradients and Adam are f32. In bf16, activations are converted by hand as Plimsoll does (`cast`: the
residual stream is bf16) or by `autocast` (it is f32); `f32` computes in f32 throughout. The loss reads logits as f32.
"""

import argparse
import json
import math
import sys
from pathlib import Path

import measure
import torch
import torch_peer
from workload import batches, first_weight


def train(workload, precision, steps, device, compiled):
    """The loss of each step, before its update."""
    if precision == "f32":
        workload.precision = "f32"
    with torch.device(device):
        part = 1 << (24 if device == "cuda" else 18)
        weights = [
            (name, first_weight(name, shape, kind, scale, torch, part))
            for name, shape, kind, scale in workload.parameters()
        ]
    words = (["cast"] if precision == "cast" else []) + (["compile"] if compiled else [])
    run = torch_peer.Peer(workload, words, device, weights)
    losses = []
    for x, y in batches(workload, workload.data(), steps, shuffled=True):
        losses.append(run.train(*run.place(x, y)).clone())
    return [loss.item() for loss in losses]


def difference(ours, theirs):
    """The step at which two runs differ the most, relatively, and by how much."""
    apart = [abs(a - b) / abs(b) if math.isfinite(a - b) else math.inf for a, b in zip(ours, theirs)]
    return max(enumerate(apart), key=lambda pair: pair[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("workload", nargs="?", default="gpt2-124m", help="a name, or the path of a TOML file")
    parser.add_argument("--precision", choices=["cast", "autocast", "f32"], default="cast")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--device", default="cuda", help="cuda or cpu")
    parser.add_argument("--compile", action="store_true", help="under torch.compile")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where to write the losses")
    parser.add_argument("--read", type=Path, metavar="FILE", help="read losses written before and do not train")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="the run.json of `plimsoll train`")
    parser.add_argument("--within", type=float, default=0.01, help="exit with 1 if they differ by more, relatively")
    options = parser.parse_args()
    if options.read:
        report = json.loads(options.read.read_text())
    else:
        torch.set_float32_matmul_precision("highest" if options.precision == "f32" else "high")
        workload = measure.load(options.workload)
        losses = train(workload, options.precision, options.steps, options.device, options.compile)
        report = {
            "workload": workload.name,
            "precision": options.precision,
            "compiled": options.compile,
            "losses": losses,
            "versions": torch_peer.versions(),
        }
    if options.out:
        options.out.write_text(json.dumps(report, indent=1) + "\n")
    losses = report["losses"]
    print(f"{len(losses)} steps, loss {losses[0]:.5f} to {losses[-1]:.5f}")
    if options.compare:
        ours = json.loads(options.compare.read_text())["losses"]
        if not ours:
            sys.exit(f"{options.compare} has no losses")
        steps = min(len(ours), len(losses))
        step, apart = difference(ours, losses)
        print(
            f"largest relative difference over {steps} steps: {apart:.2e} in step {step} "
            f"({ours[step]:.6f} and {losses[step]:.6f}); at the end {abs(ours[steps - 1] / losses[steps - 1] - 1):.2e}"
        )
        sys.exit(0 if apart <= options.within else 1)


if __name__ == "__main__":
    main()
