"""The workloads in PyTorch.

`eager`, `compile` and `compile-autotuned` differ in `torch.compile` alone. All use Adam's fused kernel, the
attention kernel that does not materialise scores, and channels-last images, for which oneDNN's convolutions
need no reordering.
"""

import os
import tempfile

import common
import torch
import torch.nn.functional as F
from torch_models import Gpt, Sequential, load


def build(workload, variant, weights):
    model = Gpt(workload) if workload.model["kind"] == "gpt" else Sequential(workload)
    load(model, weights)
    optimizer = torch.optim.Adam(model.parameters(), lr=workload.rate, fused=True)

    def loss_of(x, y):
        prediction = model(x)
        if workload.loss == "mse":
            return F.mse_loss(prediction, y)
        return F.cross_entropy(prediction.flatten(0, -2), y.flatten())

    if variant == "compile":
        # Lengths vary from the first step on: saying so saves the compilation for the first length alone.
        loss_of = torch.compile(loss_of, dynamic=True if workload.varies else None)
    elif variant == "compile-autotuned":
        loss_of = torch.compile(loss_of, mode="max-autotune-no-cudagraphs")

    def train(x, y):
        x, y = torch.from_numpy(x), torch.from_numpy(y)
        if x.dim() == 4:
            # Plimsoll's images are [height, width, channels], which is what channels-last means.
            x = x.permute(0, 3, 1, 2)
        if not y.is_floating_point():
            y = y.long()
        optimizer.zero_grad()
        loss = loss_of(x, y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return train


if __name__ == "__main__":
    torch.set_num_threads(common.THREADS)
    # Compilation is timed as it is the first time, whatever earlier runs have left.
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        common.measure("torch", torch.__version__, build)
