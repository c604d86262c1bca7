"""A network of the zoo in PyTorch, built from the same workload file, and how long its training step takes on a GPU.

    python benches/zoo/torch_twin.py FILE.toml VARIANT

A variant is words joined by dashes: `compile`, the whole of model and loss under `torch.compile`; `graphs`, by
`reduce-overhead`; `cast`, activations in bf16 and each parameter converted where it is used, as Plimsoll does; `autocast`,
PyTorch's own. All use Adam's fused kernel, attention that does not materialise scores, TF32 where f32 is multiplied, and
images whose channels are neighbours. Prints one line of JSON. `--check` takes one step on the CPU instead.
"""

import argparse
import contextlib
import json
import math
import statistics
import time
import tomllib
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

BLOCKS, WARM_UP = 7, 4

ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu, None: lambda x: x}


def cast(parameter, x):
    return None if parameter is None else parameter.to(x.dtype)


def window_padding(layer, extents, window, stride, dilation):
    """Zeros before and after rows and columns: with `same` there are as many results as strides."""
    padding = layer.get("padding", 0)
    if padding != "same":
        return [padding] * 4
    sides = []
    for extent, taps, step, gap in zip(extents, window, stride, dilation):
        missing = max((math.ceil(extent / step) - 1) * step + gap * (taps - 1) + 1 - extent, 0)
        sides += [missing // 2, missing - missing // 2]
    return sides


class Conv(nn.Module):
    def __init__(self, layer, shape):
        super().__init__()
        *extents, channels = shape
        pair = lambda key, default=1: layer.get(key, [default, default])  # noqa: E731
        window, self.stride, self.dilation = layer["window"], pair("stride"), pair("dilation")
        self.groups = layer.get("groups", 1)
        top, bottom, left, right = window_padding(layer, extents, window, self.stride, self.dilation)
        symmetric = top == bottom and left == right
        self.padding, self.border = ([top, left], None) if symmetric else (0, (left, right, top, bottom))
        scale = (window[0] * window[1] * channels / self.groups) ** -0.5
        weight = scale * torch.randn(layer["conv"], channels // self.groups, *window)
        self.weight = nn.Parameter(weight.contiguous(memory_format=torch.channels_last))
        self.bias = nn.Parameter(torch.zeros(layer["conv"])) if layer.get("bias", True) else None
        self.activation = ACTIVATIONS[layer.get("activation")]

    def forward(self, x):
        x = x.permute(0, 3, 1, 2)
        x = F.pad(x, self.border) if self.border else x
        weight, bias = cast(self.weight, x), cast(self.bias, x)
        x = F.conv2d(x, weight, bias, self.stride, self.padding, self.dilation, self.groups)
        return self.activation(x.permute(0, 2, 3, 1))


class Dense(nn.Module):
    def __init__(self, units, width, activation=None, bias=True):
        super().__init__()
        self.weight = nn.Parameter(width**-0.5 * torch.randn(units, width))
        self.bias = nn.Parameter(torch.zeros(units)) if bias else None
        self.activation = ACTIVATIONS[activation]

    def forward(self, x):
        return self.activation(F.linear(x, cast(self.weight, x), cast(self.bias, x)))


class LayerNorm(nn.LayerNorm):
    def forward(self, x):
        return F.layer_norm(x, self.normalized_shape, cast(self.weight, x), cast(self.bias, x), self.eps)


class BatchNorm(nn.BatchNorm2d):
    def forward(self, x):
        return super().forward(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


class Block(nn.Module):
    def __init__(self, width, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.ln1, self.ln2 = LayerNorm(width), LayerNorm(width)
        self.qkv, self.out = Dense(3 * width, width), Dense(width, width)
        self.up, self.down = Dense(4 * width, width, "gelu"), Dense(width, 4 * width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(self.ln1(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(self.up(self.ln2(x)))


class Recurrent(nn.Module):
    def __init__(self, kind, units, width):
        super().__init__()
        self.cell = {"gru": nn.GRU, "lstm": nn.LSTM}[kind](width, units, batch_first=True)

    def forward(self, x):
        if x.dtype == torch.float32:
            return self.cell(x)[0]
        # cuDNN's cells take weights of the type of what they read.
        with torch.autocast(x.device.type, x.dtype):
            return self.cell(x)[0]


class Residual(nn.Module):
    def __init__(self, layer, shape):
        super().__init__()
        self.inner, _ = stack(layer["residual"], shape)
        self.projection, _ = stack(layer.get("projection", []), shape)

    def forward(self, x):
        return self.projection(x) + self.inner(x)


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Embedding(nn.Embedding):
    compute = torch.float32

    def forward(self, tokens):
        return super().forward(tokens).to(self.compute)


def pooled(layer, x):
    window, stride = layer["max_pool"], layer.get("stride")
    return F.max_pool2d(x.permute(0, 3, 1, 2), window, stride, layer.get("padding", 0)).permute(0, 2, 3, 1)


def upsampled(factor, x):
    return F.interpolate(x.permute(0, 3, 1, 2), scale_factor=factor, mode="nearest").permute(0, 2, 3, 1)


def made(layer, shape):
    """The module of a layer that takes samples of a shape."""
    if isinstance(layer, str):
        layer = {layer: True}
    width = shape[-1] if shape else None
    if "conv" in layer:
        return Conv(layer, shape)
    if "dense" in layer:
        return Dense(layer["dense"], width, layer.get("activation"), layer.get("bias", True))
    if "embedding" in layer:
        return Embedding(layer["embedding"], layer["width"])
    if "block" in layer:
        return Block(width, layer["block"], layer.get("causal", False))
    if "residual" in layer:
        return Residual(layer, shape)
    if "layer_norm" in layer:
        return LayerNorm(width)
    if "batch_norm" in layer:
        return BatchNorm(width)
    if "gru" in layer or "lstm" in layer:
        kind = "gru" if "gru" in layer else "lstm"
        return Recurrent(kind, layer[kind], width)
    functions = {
        "relu": F.relu,
        "gelu": F.gelu,
        "flatten": lambda x: x.flatten(1),
        "global_mean_pool": lambda x: x.mean((1, 2)),
        "max_pool": lambda x: pooled(layer, x),
        "upsample": lambda x: upsampled(layer["upsample"], x),
        "reshape": lambda x: x.reshape(len(x), *layer["reshape"]),
    }
    return Function(next(function for key, function in functions.items() if key in layer))


def stack(layers, shape):
    """The layers one after the other, and the shape of what they give for one sample."""
    modules = nn.Sequential()
    example = torch.zeros(2, *shape) if shape else torch.zeros(2, 8, dtype=torch.int64)
    with torch.no_grad():
        for layer in layers:
            module = made(layer, tuple(example.shape[1:]))
            modules.append(module)
            example = module(example)
    return modules, tuple(example.shape[1:])


class Training:
    def __init__(self, spec, variant, device):
        self.data, train = spec["data"], spec["train"]
        self.half = train["precision"] == "bf16"
        self.cast, self.graphs = "cast" in variant, "graphs" in variant
        self.mse, self.batch, self.device = spec["loss"] == "mse", train["batch"], device
        is_text = "vocabulary" in self.data
        self.model, _ = stack(spec["model"]["layers"], () if is_text else tuple(self.data["features"]))
        self.compute = torch.bfloat16 if self.half and self.cast else torch.float32
        for module in self.model.modules():
            if isinstance(module, Embedding):
                module.compute = self.compute
        self.model.to(device)
        rate = spec["optimizer"]["rate"]
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=rate, fused=True)
        self.loss_of = self.loss
        if "compile" in variant:
            self.loss_of = torch.compile(self.loss, mode="reduce-overhead" if self.graphs else None)

    def loss(self, x, y):
        scope = torch.autocast(self.device, torch.bfloat16) if self.half and not self.cast else contextlib.nullcontext()
        with scope:
            predicted = self.model(x)
            if self.mse:
                return F.mse_loss(predicted.float(), y)
            return F.cross_entropy(predicted.flatten(0, -2).float(), y.flatten())

    def examples(self):
        of = self.data
        if "vocabulary" in of:
            shape = (self.batch, of["length"])
            return [torch.randint(of["vocabulary"], shape, device=self.device) for _ in range(2)]
        x = torch.randn(self.batch, *of["features"], device=self.device).to(self.compute)
        if "target" in of:
            return [x, torch.randn(self.batch, *of["target"], device=self.device)]
        return [x, torch.randint(of["classes"], (self.batch,), device=self.device)]

    def step(self, x, y):
        if self.graphs:
            torch.compiler.cudagraph_mark_step_begin()
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss_of(x, y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("variant", nargs="?", default="compile-cast")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    spec = tomllib.loads(options.file.read_text())
    if options.check:
        spec["train"]["batch"] = 2
    run = Training(spec, options.variant.split("-"), "cpu" if options.check else "cuda")
    batch = run.examples()
    if options.check:
        print(json.dumps({"loss": run.step(*batch).item(), "parameters": sum(p.numel() for p in run.model.parameters())}))
        return
    begin = time.perf_counter()
    run.step(*batch).item()
    first = time.perf_counter() - begin
    for _ in range(WARM_UP):
        run.step(*batch)
    torch.cuda.synchronize()
    # What only compiling and choosing algorithms needed is given back.
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    begin = time.perf_counter()
    for _ in range(WARM_UP):
        run.step(*batch)
    torch.cuda.synchronize()
    steps = max(3, round(0.2 * WARM_UP / (time.perf_counter() - begin)))
    times = []
    for _ in range(BLOCKS):
        begin = time.perf_counter()
        for _ in range(steps):
            run.step(*batch)
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - begin) / steps)
    reserved = torch.cuda.max_memory_reserved()
    result = {"median_ms": statistics.median(times), "spread_ms": [min(times), max(times)], "reserved_bytes": reserved}
    print(json.dumps(result | {"allocated_bytes": torch.cuda.max_memory_allocated(), "first_step_seconds": first}))


if __name__ == "__main__":
    main()
