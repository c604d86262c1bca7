"""Writes adafactor.json: paths of parameters of one, two and three axes under `torch.optim.Adafactor` and the same gradients,
in float64.

usage: python adafactor.py    (torch 2.15)
"""

import json
from pathlib import Path

import torch


def path(shape, rate, decay):
    count = int(torch.tensor(shape).prod())
    wave = lambda phase, scale: (torch.sin(torch.arange(count, dtype=torch.float64) * 1.7 + phase) * scale).reshape(shape)
    # As float32 has them, so that both sides begin with the same numbers.
    exactly = lambda x: x.float().double()
    parameter = torch.nn.Parameter(exactly(wave(0.3, 0.8)))
    epsilon = torch.finfo(torch.float32).eps
    optimizer = torch.optim.Adafactor([parameter], lr=rate, weight_decay=decay, eps=(epsilon, 1e-3))
    case = {"shape": shape, "rate": rate, "weight_decay": decay, "initial": parameter.flatten().tolist(), "gradients": [], "path": []}
    for step in range(10):
        # The last rows hardly have gradients, and the scale changes by orders of magnitude.
        gradient = exactly(wave(step * 0.9, 10.0 ** (step % 4 - 2)))
        gradient[-1] = gradient[-1] * 2.0**-20
        parameter.grad = gradient
        optimizer.step()
        case["gradients"].append(gradient.flatten().tolist())
        case["path"].append(parameter.flatten().tolist())
    return case


cases = [path([6], 1e-2, 0.0), path([4, 3], 1e-2, 0.0), path([4, 3], 0.5, 0.1), path([2, 3, 2], 5e-2, 0.0)]
Path(__file__).with_name("adafactor.json").write_text(json.dumps({"torch": torch.__version__, "cases": cases}) + "\n")
