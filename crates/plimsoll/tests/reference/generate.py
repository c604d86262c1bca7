"""Writes the numbers that Plimsoll's training is compared with, as PyTorch computes them.

    pip install torch numpy safetensors
    python generate.py

Everything is small, on the CPU, in one thread, and from fixed seeds; the files next to this script are its output.

Models (`mlp`, `cnn`, `gpt`, `lstm`): 20 steps of Adam over 5 batches in turn.
    <name>.safetensors   the initial value of every parameter and of the batch norms' running statistics, under
                         Plimsoll's names and in its layouts; `batches/inputs` and `batches/labels`, [5, batch, ...].
    <name>.json          torch's version, the hyper-parameters, and
        losses           of each step in float32, before its update;
        losses_f64       of the same training in float64: how far the two are apart is what rounding does;
        gradients        of the first step: sum and l2 norm for each parameter;
        final            after the last step: sum and l2 norm for each parameter and running statistic, and
                         `rounding`, the largest difference of any element between the float32 and the float64 run.
                         Where it is as large as the steps taken, the true gradient is zero and Adam has scaled up
                         rounding errors: the key third of an attention's bias, which cannot change its softmax.

`optimizers.json`: the path of a vector of six under each optimizer and the same ten gradients, in float64.

`scaler.json`: a vector of six under Adam and a `GradScaler`, in float32. The loss of a step is the product with the
next of the ten gradients in turn, times `overflow` in the steps `overflows`. `scales` are pairs of a step and the
scale after it, where that is another than before; `parameters` are after the steps `seen`.

`ops.safetensors`, `ops.json`: single layers in float64. For each case, `<case>/in/*`, `<case>/out/*`, the gradients
that arrive at the outputs `<case>/upstream/*`, and those of the inputs `<case>/grad/*`.

Layouts: dense weight [in, out]; images NHWC and filters HWIO, the I being that of one group; attention's q, k and v
are the thirds of one projection, heads contiguous within each; LSTM gates i, f, g, o and one bias; GRU gates r, z, n
with two biases. Parameters are kept in these layouts and handed to PyTorch transposed.
"""

import json
import re
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import save_file

HERE = Path(__file__).parent
EPS = 1e-5
MOMENTUM = 0.1

torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)


# Layers, in our layouts. `p` maps names to tensors.


def dense(p, scope, x):
    bias = p.get(f"{scope}/bias")
    return F.linear(x, p[f"{scope}/weight"].t(), bias)


def conv(p, scope, x, **attributes):
    filter = p[f"{scope}/filter"].permute(3, 2, 0, 1)
    return F.conv2d(x.permute(0, 3, 1, 2), filter, p.get(f"{scope}/bias"), **attributes).permute(0, 2, 3, 1)


def batch_norm(p, scope, x):
    """In training: normalises with the batch's own statistics, and moves the running ones in place."""
    running = p[f"{scope}/mean"], p[f"{scope}/variance"]
    scale = p[f"{scope}/gamma"], p[f"{scope}/beta"]
    y = F.batch_norm(x.permute(0, 3, 1, 2), *running, *scale, training=True, momentum=MOMENTUM, eps=EPS)
    return y.permute(0, 2, 3, 1)


def layer_norm(p, scope, x):
    return F.layer_norm(x, x.shape[-1:], p[f"{scope}/gamma"], p[f"{scope}/beta"], eps=EPS)


def max_pool(x, *window):
    return F.max_pool2d(x.permute(0, 3, 1, 2), *window).permute(0, 2, 3, 1)


def attention(p, scope, x, heads, causal):
    batch, tokens, width = x.shape
    thirds = dense(p, f"{scope}/qkv", x).split(width, dim=-1)
    q, k, v = (third.view(batch, tokens, heads, width // heads).transpose(1, 2) for third in thirds)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return dense(p, f"{scope}/out", y.transpose(1, 2).reshape(batch, tokens, width))


def lstm(p, scope, x):
    weights = p[f"{scope}/input_weight"].t(), p[f"{scope}/hidden_weight"].t()
    bias = p[f"{scope}/bias"]
    state = x.new_zeros(1, x.shape[0], bias.shape[0] // 4)
    weights = [weight.contiguous() for weight in weights] + [bias, torch.zeros_like(bias)]
    return torch.lstm(x, (state, state), weights, True, 1, 0.0, True, False, True)[0]


def gru(p, scope, x):
    weights = p[f"{scope}/input_weight"].t(), p[f"{scope}/hidden_weight"].t()
    biases = p[f"{scope}/input_bias"], p[f"{scope}/hidden_bias"]
    state = x.new_zeros(1, x.shape[0], biases[0].shape[0] // 3)
    weights = [weight.contiguous() for weight in weights] + [*biases]
    return torch.gru(x, state, weights, True, 1, 0.0, True, False, True)[0]


# Models: initial parameters, and the logits of a batch.


class Initial:
    """Draws parameters in order, from a generator whose values numpy has promised never to change."""

    def __init__(self, seed):
        self.random = np.random.RandomState(seed)
        self.parameters = {}

    def normal(self, name, shape, scale, mean=0.0):
        self.parameters[name] = (mean + scale * self.random.standard_normal(shape)).astype(np.float32)

    def dense(self, scope, inputs, outputs, bias=True):
        self.normal(f"{scope}/weight", (inputs, outputs), inputs**-0.5)
        if bias:
            self.normal(f"{scope}/bias", outputs, 0.1)

    def conv(self, scope, size, inputs, outputs):
        self.normal(f"{scope}/filter", (size, size, inputs, outputs), (size * size * inputs) ** -0.5)

    def norm(self, scope, width):
        self.normal(f"{scope}/gamma", width, 0.1, mean=1.0)
        self.normal(f"{scope}/beta", width, 0.1)

    def batch_norm(self, scope, width):
        self.norm(scope, width)
        self.parameters[f"{scope}/mean"] = np.zeros(width, np.float32)
        self.parameters[f"{scope}/variance"] = np.ones(width, np.float32)

    def features(self, *shape):
        return self.random.standard_normal(shape).astype(np.float32)

    def integers(self, below, *shape):
        return self.random.randint(0, below, shape).astype(np.int32)


def mlp():
    def logits(p, x):
        return dense(p, "output", F.relu(dense(p, "hidden", x)))

    initial = Initial(1)
    initial.dense("hidden", 64, 32)
    initial.dense("output", 32, 10)
    batches = initial.features(5, 16, 64), initial.integers(10, 5, 16)
    return initial, batches, logits


def cnn():
    def logits(p, x):
        x = F.relu(batch_norm(p, "norm1", conv(p, "conv1", x, padding=1)))
        x = max_pool(x, 2)
        x = F.relu(batch_norm(p, "norm2", conv(p, "conv2", x, stride=2, padding=1)))
        return dense(p, "output", x.mean(dim=(1, 2)))

    initial = Initial(2)
    initial.conv("conv1", 3, 3, 8)
    initial.batch_norm("norm1", 8)
    initial.conv("conv2", 3, 8, 16)
    initial.batch_norm("norm2", 16)
    initial.dense("output", 16, 10)
    batches = initial.features(5, 8, 12, 12, 3), initial.integers(10, 5, 8)
    return initial, batches, logits


def gpt():
    blocks, width, heads, tokens, vocabulary = 2, 32, 4, 16, 64

    def logits(p, x):
        x = F.embedding(x, p["tokens/table"]) + p["positions/table"]
        for block in range(blocks):
            scope = f"block{block}"
            x = x + attention(p, f"{scope}/attention", layer_norm(p, f"{scope}/ln1", x), heads, causal=True)
            hidden = F.gelu(dense(p, f"{scope}/mlp/up", layer_norm(p, f"{scope}/ln2", x)))
            x = x + dense(p, f"{scope}/mlp/down", hidden)
        return dense(p, "head", layer_norm(p, "ln", x))

    initial = Initial(3)
    initial.normal("tokens/table", (vocabulary, width), 0.5)
    initial.normal("positions/table", (tokens, width), 0.5)
    for block in range(blocks):
        scope = f"block{block}"
        initial.norm(f"{scope}/ln1", width)
        initial.dense(f"{scope}/attention/qkv", width, 3 * width)
        initial.dense(f"{scope}/attention/out", width, width)
        initial.norm(f"{scope}/ln2", width)
        initial.dense(f"{scope}/mlp/up", width, 4 * width)
        initial.dense(f"{scope}/mlp/down", 4 * width, width)
    initial.norm("ln", width)
    initial.dense("head", width, vocabulary, bias=False)
    text = initial.integers(vocabulary, 5, 4, tokens + 1)
    return initial, (text[..., :-1].copy(), text[..., 1:].copy()), logits


def lstm_model():
    vocabulary, width, hidden = 32, 16, 24

    def logits(p, x):
        return dense(p, "head", lstm(p, "lstm", F.embedding(x, p["embedding/table"])))

    initial = Initial(4)
    initial.normal("embedding/table", (vocabulary, width), 0.5)
    initial.normal("lstm/input_weight", (width, 4 * hidden), width**-0.5)
    initial.normal("lstm/hidden_weight", (hidden, 4 * hidden), hidden**-0.5)
    initial.normal("lstm/bias", 4 * hidden, 0.1)
    initial.dense("head", hidden, vocabulary)
    text = initial.integers(vocabulary, 5, 4, 12 + 1)
    return initial, (text[..., :-1].copy(), text[..., 1:].copy()), logits


# Training.

ADAM = {"lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8}
STEPS = 20


def is_running(name):
    return name.endswith(("/mean", "/variance"))


def train(initial, batches, logits, dtype):
    """The losses of all steps, the first step's gradients, and what the parameters and statistics end as."""
    p = {name: torch.tensor(value, dtype=dtype) for name, value in initial.parameters.items()}
    trained = {name: value.requires_grad_() for name, value in p.items() if not is_running(name)}
    adam = torch.optim.Adam(trained.values(), lr=ADAM["lr"], betas=tuple(ADAM["betas"]), eps=ADAM["eps"])
    losses, gradients = [], None
    for step in range(STEPS):
        inputs, labels = (torch.from_numpy(part[step % len(part)]) for part in batches)
        inputs = inputs.to(dtype) if inputs.is_floating_point() else inputs.long()
        rows = logits(p, inputs)
        loss = F.cross_entropy(rows.reshape(-1, rows.shape[-1]), labels.long().reshape(-1))
        adam.zero_grad()
        loss.backward()
        gradients = gradients or {name: value.grad.clone() for name, value in trained.items()}
        adam.step()
        losses.append(loss.item())
    return losses, gradients, {name: value.detach() for name, value in p.items()}


def checksum(value):
    value = value.double()
    return {"sum": value.sum().item(), "l2": value.norm().item()}


def write_model(name, model):
    initial, batches, logits = model
    losses, gradients, final = train(*model, torch.float32)
    losses_f64, _, final_f64 = train(*model, torch.float64)
    rounding = {key: (final[key].double() - final_f64[key]).abs().max().item() for key in final}
    write_tensors(name, initial.parameters | {"batches/inputs": batches[0], "batches/labels": batches[1]})
    write_json(
        name,
        {
            "optimizer": {"name": "adam"} | ADAM,
            "normalization": {"eps": EPS, "momentum": MOMENTUM},
            "steps": STEPS,
            "losses": losses,
            "losses_f64": losses_f64,
            "gradients": {key: checksum(value) for key, value in gradients.items()},
            "final": {key: checksum(value) | {"rounding": rounding[key]} for key, value in final.items()},
        },
    )


# Optimizers.


def write_optimizers():
    random = np.random.RandomState(5)
    start = np.round(random.standard_normal(6), 3).tolist()
    # Sizes far apart, and a gradient that is exactly zero, where a missing epsilon would show.
    scale = [1.0, 0.1, 10.0, 1e-4, 1.0, 0.0]
    # Adding zero turns -0.0 into 0.0.
    gradients = (np.round(random.standard_normal((10, 6)) * scale, 8) + 0.0).tolist()
    optim = torch.optim
    betas = {"betas": [0.9, 0.999], "eps": 1e-8}
    cases = [
        ("sgd", optim.SGD, {"lr": 0.1}),
        ("sgd_momentum", optim.SGD, {"lr": 0.1, "momentum": 0.9}),
        ("sgd_nesterov", optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
        ("sgd_weight_decay", optim.SGD, {"lr": 0.1, "weight_decay": 0.05}),
        ("sgd_momentum_weight_decay", optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.05}),
        ("rmsprop", optim.RMSprop, {"lr": 0.01, "alpha": 0.99, "eps": 1e-8}),
        ("rmsprop_momentum", optim.RMSprop, {"lr": 0.01, "alpha": 0.99, "eps": 1e-8, "momentum": 0.9}),
        ("adagrad", optim.Adagrad, {"lr": 0.1, "eps": 1e-10}),
        ("adam", optim.Adam, {"lr": 0.01} | betas),
        ("adam_weight_decay", optim.Adam, {"lr": 0.01, "weight_decay": 0.05} | betas),
        ("adamw", optim.AdamW, {"lr": 0.01, "weight_decay": 0.05} | betas),
    ]
    paths = {}
    for name, kind, settings in cases:
        parameter = torch.tensor(start, dtype=torch.float64, requires_grad=True)
        optimizer = kind([parameter], **settings)
        path = []
        for gradient in gradients:
            parameter.grad = torch.tensor(gradient, dtype=torch.float64)
            optimizer.step()
            path.append(parameter.tolist())
        paths[name] = {"settings": settings, "parameters": path}
    write_json("optimizers", {"initial": start, "gradients": gradients, "cases": paths})


# Loss scaling.


def write_scaler():
    random = np.random.RandomState(7)
    start = np.round(random.standard_normal(6), 3).tolist()
    gradients = np.round(random.standard_normal((10, 6)), 4).tolist()
    overflow, overflows, steps = 1e36, [0, 1, 2, 9, 40, 2050, 2061], 4070
    seen = [2, 3, 4, 8, 9, 10, 11, 100, 2049, 2050, 2051, 4069]
    parameter = torch.tensor(start, dtype=torch.float32, requires_grad=True)
    adam = torch.optim.Adam([parameter], lr=ADAM["lr"], betas=tuple(ADAM["betas"]), eps=ADAM["eps"])
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**15, growth_interval=2000)
    scales, path, last = [], [], scaler.get_scale()
    for step in range(steps):
        gradient = torch.tensor(gradients[step % len(gradients)], dtype=torch.float32)
        gradient = gradient * (overflow if step in overflows else 1.0)
        adam.zero_grad()
        scaler.scale((parameter * gradient).sum()).backward()
        scaler.step(adam)
        scaler.update()
        if scaler.get_scale() != last:
            last = scaler.get_scale()
            scales.append([step, last])
        if step in seen:
            path.append(parameter.tolist())
    content = {"initial": start, "gradients": gradients, "overflow": overflow, "overflows": overflows, "steps": steps}
    write_json("scaler", content | {"optimizer": ADAM, "scales": scales, "seen": seen, "parameters": path})


# Single layers.


class Ops:
    def __init__(self, seed):
        self.random = np.random.RandomState(seed)
        self.tensors = {}
        self.cases = {}

    def case(self, name, layer, inputs, constants=None, attributes=None):
        """Runs a layer on random inputs of these shapes; `constants` are inputs that have no gradient.

        `layer` takes a dictionary of inputs and gives one of outputs, or a single output, `y`.
        """
        values = {key: self.value(key, shape) for key, shape in inputs.items()}
        # Layers may move running statistics in place, so these are written down first.
        constants = constants or {}
        for kind in values, constants:
            self.tensors |= {f"{name}/in/{key}": value.detach().numpy().copy() for key, value in kind.items()}
        outputs = layer(values | constants)
        outputs = outputs if isinstance(outputs, dict) else {"y": outputs}
        upstream = {key: self.value(key, y.shape).detach() for key, y in outputs.items() if y.requires_grad}
        torch.autograd.backward([outputs[key] for key in upstream], list(upstream.values()))
        grad = {key: value.grad for key, value in values.items()}
        for group, kind in {"out": outputs, "upstream": upstream, "grad": grad}.items():
            self.tensors |= {f"{name}/{group}/{key}": value.detach().numpy().copy() for key, value in kind.items()}
        self.cases[name] = attributes or {}

    def value(self, name, shape):
        mean = 1.0 if name == "gamma" else 0.0
        return torch.tensor(mean + self.random.standard_normal(shape), dtype=torch.float64, requires_grad=True)


def scoped(layer, *arguments):
    """A layer of the models above, with its parameters under their bare names."""
    return lambda p: layer({f"l/{key}": value for key, value in p.items()}, "l", p["x"], *arguments)


def write_ops():
    ops = Ops(6)
    inputs, hidden = 4, 5
    ops.case(
        "gru",
        scoped(gru),
        {
            "x": (2, 3, inputs),
            "input_weight": (inputs, 3 * hidden),
            "hidden_weight": (hidden, 3 * hidden),
            "input_bias": 3 * hidden,
            "hidden_bias": 3 * hidden,
        },
    )
    ops.case(
        "lstm",
        scoped(lstm),
        {
            "x": (2, 3, inputs),
            "input_weight": (inputs, 4 * hidden),
            "hidden_weight": (hidden, 4 * hidden),
            "bias": 4 * hidden,
        },
    )
    for name, causal in ("attention", False), ("attention_causal", True):
        attributes = {"heads": 2, "causal": causal}
        projections = {"qkv/weight": (8, 24), "qkv/bias": 24, "out/weight": (8, 8), "out/bias": 8}
        ops.case(name, scoped(attention, 2, causal), {"x": (2, 5, 8)} | projections, attributes=attributes)

        # Without the projections: [batch, heads, tokens, head width].
        def core(p, causal=causal):
            return F.scaled_dot_product_attention(p["q"], p["k"], p["v"], is_causal=causal)

        ops.case(f"{name}_core", core, dict.fromkeys("qkv", (2, 2, 5, 4)), attributes=attributes)
    ops.case("layer_norm", scoped(layer_norm), {"x": (3, 4, 6), "gamma": 6, "beta": 6}, attributes={"eps": EPS})

    def norm(p):
        y = scoped(batch_norm)(p)
        return {"y": y, "mean": p["mean"], "variance": p["variance"]}

    running = {"mean": torch.linspace(-1, 1, 5).double(), "variance": torch.linspace(0.5, 2, 5).double()}
    shapes = {"x": (4, 3, 3, 5), "gamma": 5, "beta": 5}
    ops.case("batch_norm", norm, shapes, running, {"eps": EPS, "momentum": MOMENTUM})

    plain = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1}
    for name, attributes in {
        "conv": {},
        "conv_stride": {"stride": 2, "padding": 1},
        "conv_dilation": {"dilation": 2, "padding": 1},
        "conv_groups": {"groups": 2},
        "conv_all": {"stride": 2, "padding": 1, "dilation": 2, "groups": 2},
    }.items():
        attributes = plain | attributes

        def convolve(p, attributes=attributes):
            return conv({"l/filter": p["filter"], "l/bias": p["bias"]}, "l", p["x"], **attributes)

        shapes = {"x": (2, 7, 6, 4), "filter": (3, 3, 4 // attributes["groups"], 6), "bias": 6}
        ops.case(name, convolve, shapes, attributes=attributes)

    window = {"window": 3, "stride": 2, "padding": 1}
    ops.case("max_pool", lambda p: max_pool(p["x"], 3, 2, 1), {"x": (2, 6, 5, 3)}, attributes=window)

    def average(p):
        y = F.avg_pool2d(p["x"].permute(0, 3, 1, 2), 3, 2, 1, count_include_pad=False)
        return y.permute(0, 2, 3, 1)

    ops.case("avg_pool", average, {"x": (2, 6, 5, 3)}, attributes=window | {"count_include_pad": False})

    labels = torch.tensor([3, 0, 6, 6, 1, 2], dtype=torch.int32)

    def cross_entropy(p):
        return F.cross_entropy(p["logits"], p["labels"].long())

    ops.case("cross_entropy", cross_entropy, {"logits": (6, 7)}, {"labels": labels}, {"reduction": "mean"})
    ops.case("gelu", lambda p: F.gelu(p["x"]), {"x": (4, 6)}, attributes={"approximate": "none"})
    write_tensors("ops", ops.tensors)
    write_json("ops", {"cases": ops.cases})


# Files.


def write_tensors(name, tensors):
    tensors = {key: np.array(value, order="C") for key, value in tensors.items()}
    save_file(tensors, HERE / f"{name}.safetensors", metadata={"torch": torch.__version__})


def write_json(name, content):
    text = json.dumps({"torch": torch.__version__} | content, indent=1)
    # A list or an object that holds nothing but numbers and words goes on one line.
    text = re.sub(r"[\[{][^\[\]{}]*[\]}]", lambda match: re.sub(r"\s*\n\s*", " ", match.group()), text)
    (HERE / f"{name}.json").write_text(text + "\n")


write_model("mlp", mlp())
write_model("cnn", cnn())
write_model("gpt", gpt())
write_model("lstm", lstm_model())
write_optimizers()
write_scaler()
write_ops()
for path in sorted(HERE.iterdir()):
    print(f"{path.stat().st_size:8} {path.name}")
