"""The models in PyTorch, with Plimsoll's names for their parameters.

Parameters are f32 and are converted where they are used to the type of what they are used on.
"""

import torch
import torch.nn.functional as F
from torch import nn
from workload import STAGES, resnet_blocks, resnet_convolutions


def apply(layer, x):
    """A dense layer or convolution, in the type of `x`."""
    if isinstance(layer, nn.Linear):
        return F.linear(x, layer.weight.to(x.dtype), None if layer.bias is None else layer.bias.to(x.dtype))
    return layer(x)


def norm(layer, x):
    """A layer norm, in the type of `x`; its statistics are in f32."""
    return F.layer_norm(x, layer.normalized_shape, layer.weight.to(x.dtype), layer.bias.to(x.dtype), layer.eps)


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
                x = apply(self.layers[name], x)
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
        qkv = apply(self.qkv, norm(self.ln1, x)).view(batch, tokens, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + apply(self.out, mixed.transpose(1, 2).reshape(batch, tokens, width))
        return x + apply(self.down, F.gelu(apply(self.up, norm(self.ln2, x))))


class Gpt(nn.Module):
    """The residual stream has the type `compute`. The tokens' table has a multiple of so many rows."""

    def __init__(self, workload, compute=torch.float32, multiple=1):
        super().__init__()
        model = workload.model
        width, vocabulary = model["width"], model["vocabulary"]
        self.vocabulary, self.compute = vocabulary, compute
        self.tokens = nn.Embedding(-(-vocabulary // multiple) * multiple, width, device="meta")
        self.positions = nn.Embedding(model["context"], width, device="meta")
        self.blocks = nn.ModuleList(Block(width, model["heads"]) for _ in range(model["layers"]))
        self.ln = nn.LayerNorm(width, device="meta")
        tied = model.get("tied_head")
        self.head = None if tied else nn.Linear(width, vocabulary, bias=False, device="meta")

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
        if self.head is not None:
            yield "head/weight", self.head, "weight"

    def forward(self, tokens):
        x = self.tokens(tokens).to(self.compute) + self.positions.weight[: tokens.shape[1]].to(self.compute)
        for block in self.blocks:
            x = block(x)
        x = norm(self.ln, x)
        if self.head is not None:
            return apply(self.head, x)
        return F.linear(x, self.tokens.weight.to(x.dtype))[..., : self.vocabulary]


class ResNet50(nn.Module):
    """Convolutions and norms by Plimsoll's names. Norms are made on the default device, for their statistics."""

    def __init__(self, workload):
        super().__init__()
        self.convs, self.norms = nn.ModuleDict(), nn.ModuleDict()
        for name, inputs, filters, extent, stride in resnet_convolutions(workload.features[-1]):
            self.convs[name] = nn.Conv2d(
                inputs, filters, extent, stride, padding=extent // 2, bias=False, device="meta"
            )
            self.norms[name] = nn.BatchNorm2d(filters)
        self.head = nn.Linear(4 * STAGES[-1][0], workload.model["classes"], device="meta")

    def parameter_names(self):
        for name, conv in self.convs.items():
            yield f"{name}/filter", conv, "weight"
            norm = name.replace("conv", "norm")
            yield f"{norm}/gamma", self.norms[name], "weight"
            yield f"{norm}/beta", self.norms[name], "bias"
        yield "head/weight", self.head, "weight"
        yield "head/bias", self.head, "bias"

    def forward(self, x):
        def convolve(name, x):
            return self.norms[name](self.convs[name](x))

        x = F.max_pool2d(F.relu(convolve("stem/conv", x)), 3, 2, 1)
        for scope, _, _, project in resnet_blocks():
            y = F.relu(convolve(f"{scope}/conv1", x))
            y = F.relu(convolve(f"{scope}/conv2", y))
            y = convolve(f"{scope}/conv3", y)
            x = F.relu((convolve(f"{scope}/projection/conv", x) if project else x) + y)
        return self.head(x.mean((2, 3)))


def load(model, weights):
    """Gives the model its first weights, which come as [.., in, out]."""
    places = {name: (layer, attribute) for name, layer, attribute in model.parameter_names()}
    for name, values in weights:
        layer, attribute = places.pop(name)
        tensor = torch.as_tensor(values)
        if isinstance(layer, nn.Linear) and attribute == "weight":
            tensor = tensor.t().contiguous()
        elif isinstance(layer, nn.Conv2d) and attribute == "weight":
            tensor = tensor.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)
        if isinstance(layer, nn.Embedding) and len(tensor) < layer.num_embeddings:
            tensor = F.pad(tensor, (0, 0, 0, layer.num_embeddings - len(tensor)))
        setattr(layer, attribute, nn.Parameter(tensor))
    if places:
        raise RuntimeError(f"no first weights for {', '.join(places)}")
