"""Writes `loops.json`: training loops of a person's own making, as PyTorch computes them in float64.

    pip install torch
    python loops.py

Every case is 20 steps from the initial parameters that are in the file, on the inputs that are in the file. It has the
losses in the order in which they are computed, before each update, and the parameters after the last.

    two_adams             one loss, two layers, an Adam for each.
    momentum_and_adam     the first layer by SGD with momentum in every step, the second by Adam from step 10 on.
    accumulation_eager    dropout 0.25; each step is two forward passes on halves of the batch, whose gradients are
    accumulation_compiled averaged for one update by Adam. Masks are those that Plimsoll draws: of pass 2s and 2s + 1 in
                          eager mode, of the first and second op of step s in a compiled step.
    gan                   a discriminator and a generator, each with an Adam of its own, in turns.

Dense weights are [in, out].
"""

import json
import math
import re
from pathlib import Path

import torch
import torch.nn.functional as F

HERE = Path(__file__).parent
STEPS = 20
SEED = 5

torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)


def numbers(shape, key, scale):
    """Numbers that follow from their positions, rounded to float32 so that both sides begin with the same."""
    count = math.prod(shape)
    values = [scale * math.sin(1.3 * i + 0.7 * key) for i in range(count)]
    return torch.tensor(values, dtype=torch.float32).double().reshape(shape)


def parameters(shapes):
    return {
        name: numbers(shape, key, 0.5 / math.sqrt(shape[0]) if len(shape) > 1 else 0.1).requires_grad_()
        for key, (name, shape) in enumerate(shapes.items())
    }


def dense(p, scope, x):
    return x @ p[f"{scope}/weight"] + p[f"{scope}/bias"]


def philox(counter, key):
    (a, b, c, d), (low, high) = counter, key
    mask = 0xFFFFFFFF
    for _ in range(10):
        first, second = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (second >> 32) ^ b ^ low, second & mask, (first >> 32) ^ d ^ high, first & mask
        low, high = (low + 0x9E3779B9) & mask, (high + 0xBB67AE85) & mask
    return a, b, c, d


def dropout(x, rate, step, stream):
    """Plimsoll's dropout: numbers are functions of seed, step, stream and position."""
    draw = lambda at: (philox((at, 0, stream, step), (SEED, 0))[0] >> 8) / (1 << 24)
    kept = torch.tensor([draw(at) >= rate for at in range(x.numel())]).reshape(x.shape)
    return torch.where(kept, x / (1 - rate), torch.zeros_like(x))


def listed(tensors):
    return {
        name: {"shape": list(t.shape), "values": t.detach().reshape(-1).tolist()} for name, t in tensors.items()
    }


def case(initial, inputs, p, losses):
    return {"initial": initial, "inputs": listed(inputs), "losses": losses, "final": listed(p)}


TWO_LAYERS = {
    "first/weight": [6, 10],
    "first/bias": [10],
    "second/weight": [10, 3],
    "second/bias": [3],
}


def of(p, scope):
    return [t for name, t in p.items() if name.startswith(scope + "/")]


def two_adams():
    p = parameters(TWO_LAYERS)
    initial = listed(p)
    x, y = numbers([8, 6], 10, 1.0), numbers([8, 3], 11, 1.0)
    first, second = torch.optim.Adam(of(p, "first"), 1e-2), torch.optim.Adam(of(p, "second"), 3e-3, (0.8, 0.99))
    losses = []
    for _ in range(STEPS):
        loss = F.mse_loss(dense(p, "second", torch.tanh(dense(p, "first", x))), y)
        first.zero_grad()
        second.zero_grad()
        loss.backward()
        first.step()
        second.step()
        losses.append(loss.item())
    return case(initial, {"x": x, "y": y}, p, losses)


def momentum_and_adam():
    p = parameters(TWO_LAYERS)
    initial = listed(p)
    x, y = numbers([8, 6], 12, 1.0), numbers([8, 3], 13, 1.0)
    first = torch.optim.SGD(of(p, "first"), 0.05, momentum=0.9)
    second = torch.optim.Adam(of(p, "second"), 1e-2)
    losses = []
    for step in range(STEPS):
        loss = F.mse_loss(dense(p, "second", torch.tanh(dense(p, "first", x))), y)
        first.zero_grad()
        second.zero_grad()
        loss.backward()
        first.step()
        if step >= 10:
            second.step()
        losses.append(loss.item())
    return case(initial, {"x": x, "y": y}, p, losses)


def accumulation(draw):
    p = parameters(TWO_LAYERS)
    initial = listed(p)
    x, y = numbers([8, 6], 14, 1.0), numbers([8, 3], 15, 1.0)
    adam = torch.optim.Adam(p.values(), 1e-2)
    losses = []
    for step in range(STEPS):
        adam.zero_grad()
        for half in range(2):
            rows = slice(4 * half, 4 * half + 4)
            hidden = dropout(torch.tanh(dense(p, "first", x[rows])), 0.25, *draw(step, half))
            loss = F.mse_loss(dense(p, "second", hidden), y[rows])
            (loss / 2).backward()
            losses.append(loss.item())
        adam.step()
    return case(initial, {"x": x, "y": y}, p, losses)


def gan():
    p = parameters(
        {
            "generator/hidden/weight": [3, 12],
            "generator/hidden/bias": [12],
            "generator/out/weight": [12, 2],
            "generator/out/bias": [2],
            "discriminator/hidden/weight": [2, 12],
            "discriminator/hidden/bias": [12],
            "discriminator/out/weight": [12, 1],
            "discriminator/out/bias": [1],
        }
    )
    initial = listed(p)
    z, real = numbers([16, 3], 20, 1.0), numbers([16, 2], 21, 1.0) + 1.0
    real = real.float().double()
    network = lambda scope, x: dense(p, f"{scope}/out", torch.tanh(dense(p, f"{scope}/hidden", x)))
    judge = torch.optim.Adam(of(p, "discriminator"), 4e-3, (0.5, 0.999))
    forge = torch.optim.Adam(of(p, "generator"), 2e-3, (0.5, 0.999))
    bce = F.binary_cross_entropy_with_logits
    one, zero = torch.ones(16, 1), torch.zeros(16, 1)
    losses = []
    for _ in range(STEPS):
        fake = network("generator", z).detach()
        loss = bce(network("discriminator", real), one) + bce(network("discriminator", fake), zero)
        judge.zero_grad()
        loss.backward()
        judge.step()
        losses.append(loss.item())
        loss = bce(network("discriminator", network("generator", z)), one)
        forge.zero_grad()
        loss.backward()
        forge.step()
        losses.append(loss.item())
    return case(initial, {"z": z, "real": real}, p, losses)


if __name__ == "__main__":
    cases = {
        "torch": torch.__version__,
        "seed": SEED,
        "two_adams": two_adams(),
        "momentum_and_adam": momentum_and_adam(),
        "accumulation_eager": accumulation(lambda step, half: (2 * step + half, 1)),
        "accumulation_compiled": accumulation(lambda step, half: (step, 1 + half)),
        "gan": gan(),
    }
    text = json.dumps(cases, indent=1)
    # A list of numbers goes on one line.
    text = re.sub(r"\[[^\[\]{}]*\]", lambda match: re.sub(r"\s*\n\s*", " ", match.group()), text)
    (HERE / "loops.json").write_text(text + "\n")
