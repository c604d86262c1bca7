"""Writes `groups.json`: optimizers with groups of parameters, as PyTorch computes them in float64.

    pip install torch
    python groups.py

Every case is 20 steps of a network of two layers from the initial parameters that are in the file, on the inputs that are
in the file. It has the losses in the order in which they are computed, before each update, and the parameters after the
last. Groups are, the first that matches counts:

    */bias   no weight decay, twice the rate.
    second   a rate of its own, a cosine to zero in 30 steps after a warm-up of 4; gradients clipped at a norm of 0.05.
    (rest)   the optimizer's rate, decay, and gradients clipped at a norm of 0.1 together with those of the biases.

Dense weights are [in, out].
"""

import json
import math
from pathlib import Path

import torch
import torch.nn.functional as F

HERE = Path(__file__).parent
STEPS = 20

torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)

SHAPES = {"first/weight": [6, 10], "first/bias": [10], "second/weight": [10, 3], "second/bias": [3]}


def numbers(shape, key, scale):
    """Numbers that follow from their positions, rounded to float32 so that both sides begin with the same."""
    values = [scale * math.sin(1.3 * i + 0.7 * key) for i in range(math.prod(shape))]
    return torch.tensor(values, dtype=torch.float32).double().reshape(shape)


def listed(tensors):
    return {
        name: {"shape": list(t.shape), "values": t.detach().reshape(-1).tolist()} for name, t in tensors.items()
    }


def cosine(step, base, steps, warmup):
    part = min(max(step - warmup, 0) / steps, 1)
    return base * (0.5 + 0.5 * math.cos(math.pi * part)) * min((step + 1) / warmup, 1)


def case(optimizer, rate, decay, own_rate):
    p = {name: numbers(shape, key, 0.5).requires_grad_() for key, (name, shape) in enumerate(SHAPES.items())}
    initial = listed(p)
    inputs = {"x": numbers([8, 6], 10, 1.0), "y": numbers([8, 3], 11, 1.0)}
    biases, own, rest = [p["first/bias"], p["second/bias"]], [p["second/weight"]], [p["first/weight"]]
    groups = [
        {"params": biases, "weight_decay": 0.0, "lr": 2 * rate},
        {"params": own, "weight_decay": decay},
        {"params": rest, "weight_decay": decay, "lr": rate},
    ]
    optimizer = optimizer(groups)
    losses = []
    for step in range(STEPS):
        hidden = torch.tanh(inputs["x"] @ p["first/weight"] + p["first/bias"])
        loss = F.mse_loss(hidden @ p["second/weight"] + p["second/bias"], inputs["y"])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(own, 0.05)
        torch.nn.utils.clip_grad_norm_(biases + rest, 0.1)
        optimizer.param_groups[1]["lr"] = cosine(step, own_rate, 30, 4)
        optimizer.step()
        losses.append(loss.item())
    return {"initial": initial, "inputs": listed(inputs), "losses": losses, "final": listed(p)}


cases = {
    "adamw": case(lambda groups: torch.optim.AdamW(groups, 1e-3), 1e-3, 0.1, 5e-3),
    "sgd": case(lambda groups: torch.optim.SGD(groups, 0.05, momentum=0.9, nesterov=True), 0.05, 0.1, 0.2),
    "rmsprop": case(lambda groups: torch.optim.RMSprop(groups, 1e-3), 1e-3, 0.1, 5e-3),
}
(HERE / "groups.json").write_text(json.dumps(cases) + "\n")
