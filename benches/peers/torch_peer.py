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
from torch import nn


class Sequential(nn.Module):
    def __init__(self, workload):
        super().__init__()
        self.steps = list(workload.layers())
        shapes = {name: shape for name, shape, _, _ in workload.parameters()}
        self.layers = nn.ModuleDict()
        for name, layer in self.steps:
            if "conv" in layer:
                window, _, inputs, outputs = shapes[f"{name}/filter"]
                self.layers[name] = nn.Conv2d(inputs, outputs, window, padding="same", device="meta")
            elif "dense" in layer:
                self.layers[name] = nn.Linear(*shapes[f"{name}/weight"], device="meta")

    def parameter_names(self):
        for name, layer in self.layers.items():
            kind = "filter" if isinstance(layer, nn.Conv2d) else "weight"
            yield f"{name}/{kind}", layer, "weight"
            yield f"{name}/bias", layer, "bias"

    def forward(self, x):
        for name, layer in self.steps:
            if "max_pool" in layer:
                x = F.max_pool2d(x, layer["max_pool"])
            elif "global_mean_pool" in layer:
                x = x.mean((2, 3))
            else:
                x = self.layers[name](x)
                if layer.get("activation") == "relu":
                    x = F.relu(x)
        return x


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln1 = nn.LayerNorm(width, device="meta")
        self.qkv = nn.Linear(width, 3 * width, device="meta")
        self.out = nn.Linear(width, width, device="meta")
        self.ln2 = nn.LayerNorm(width, device="meta")
        self.up = nn.Linear(width, 4 * width, device="meta")
        self.down = nn.Linear(4 * width, width, device="meta")

    def forward(self, x):
        batch, tokens, width = x.shape
        qkv = self.qkv(self.ln1(x)).view(batch, tokens, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(F.gelu(self.up(self.ln2(x))))


class Gpt(nn.Module):
    def __init__(self, workload):
        super().__init__()
        model = workload.model
        width, vocabulary = model["width"], model["vocabulary"]
        self.tokens = nn.Embedding(vocabulary, width, device="meta")
        self.positions = nn.Embedding(model["context"], width, device="meta")
        self.blocks = nn.ModuleList(Block(width, model["heads"]) for _ in range(model["layers"]))
        self.ln = nn.LayerNorm(width, device="meta")
        self.head = nn.Linear(width, vocabulary, bias=False, device="meta")

    def parameter_names(self):
        yield "tokens/table", self.tokens, "weight"
        yield "positions/table", self.positions, "weight"
        for i, block in enumerate(self.blocks):
            for norm in ("ln1", "ln2"):
                yield f"block{i}/{norm}/gamma", getattr(block, norm), "weight"
                yield f"block{i}/{norm}/beta", getattr(block, norm), "bias"
            for path in ("attention/qkv", "attention/out", "mlp/up", "mlp/down"):
                layer = getattr(block, path.split("/")[1])
                yield f"block{i}/{path}/weight", layer, "weight"
                yield f"block{i}/{path}/bias", layer, "bias"
        yield "ln/gamma", self.ln, "weight"
        yield "ln/beta", self.ln, "bias"
        yield "head/weight", self.head, "weight"

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x))


def load(model, weights):
    """Gives the model its first weights, which come as [.., in, out]."""
    places = {name: (layer, attribute) for name, layer, attribute in model.parameter_names()}
    for name, values in weights:
        layer, attribute = places.pop(name)
        tensor = torch.from_numpy(values)
        if isinstance(layer, nn.Linear) and attribute == "weight":
            tensor = tensor.t().contiguous()
        elif isinstance(layer, nn.Conv2d) and attribute == "weight":
            tensor = tensor.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)
        setattr(layer, attribute, nn.Parameter(tensor))
    if places:
        raise RuntimeError(f"no first weights for {', '.join(places)}")


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
