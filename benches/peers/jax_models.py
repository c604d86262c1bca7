"""The models in JAX, as functions of parameters by Plimsoll's names, and Adam.

Parameters are f32 and are converted where they are used to the type of what they are used on.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from workload import resnet_blocks


def sequential(workload):
    layers = list(workload.layers())

    def forward(p, x):
        for name, layer in layers:
            if "conv" in layer:
                numbers = ("NHWC", "HWIO", "NHWC")
                x = lax.conv_general_dilated(x, p[f"{name}/filter"], (1, 1), "SAME", dimension_numbers=numbers)
                x = x + p[f"{name}/bias"]
            elif "dense" in layer:
                x = dense(p, name, x)
            elif "max_pool" in layer:
                # Windows do not overlap; a maximum over axes has a faster gradient on CPUs than reduce_window.
                batch, height, width, channels = x.shape
                size = layer["max_pool"]
                x = x.reshape(batch, height // size, size, width // size, size, channels).max((2, 4))
            else:
                x = x.mean((1, 2))
            if layer.get("activation") == "relu":
                x = jax.nn.relu(x)
        return x

    return forward


def dense(p, name, x):
    return x @ p[f"{name}/weight"].astype(x.dtype) + p[f"{name}/bias"].astype(x.dtype)


def norm(p, name, x):
    y = x.astype(jnp.float32)
    mean = y.mean(-1, keepdims=True)
    variance = jnp.square(y - mean).mean(-1, keepdims=True)
    y = (y - mean) * lax.rsqrt(variance + 1e-5) * p[f"{name}/gamma"] + p[f"{name}/beta"]
    return y.astype(x.dtype)


def gpt(workload, compute=jnp.float32, attention=None):
    """`attention` is the implementation that JAX is asked for."""
    layers, heads = workload.model["layers"], workload.model["heads"]

    def forward(p, tokens):
        table, positions = p["tokens/table"], p["positions/table"]
        x = table[tokens].astype(compute) + positions[: tokens.shape[1]].astype(compute)
        batch, length, width = x.shape
        for i in range(layers):
            block = f"block{i}"
            qkv = dense(p, f"{block}/attention/qkv", norm(p, f"{block}/ln1", x))
            q, k, v = (part.reshape(batch, length, heads, -1) for part in jnp.split(qkv, 3, -1))
            mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation=attention)
            x = x + dense(p, f"{block}/attention/out", mixed.reshape(batch, length, width))
            up = dense(p, f"{block}/mlp/up", norm(p, f"{block}/ln2", x))
            x = x + dense(p, f"{block}/mlp/down", jax.nn.gelu(up, approximate=False))
        x = norm(p, "ln", x)
        head = p["head/weight"] if "head/weight" in p else table.T
        return x @ head.astype(x.dtype)

    return forward


def resnet50(compute):
    """Gives the batch's statistics by name beside the logits."""

    def forward(p, x):
        batch = {}

        def convolve(name, x, stride=1):
            weight = p[f"{name}/filter"].astype(x.dtype)
            border = [(weight.shape[0] // 2,) * 2] * 2
            numbers = ("NHWC", "HWIO", "NHWC")
            y = lax.conv_general_dilated(x, weight, (stride, stride), border, dimension_numbers=numbers)
            norm = name.replace("conv", "norm")
            z = y.astype(jnp.float32)
            mean = z.mean((0, 1, 2))
            variance = jnp.maximum(jnp.square(z).mean((0, 1, 2)) - jnp.square(mean), 0.0)
            count = math.prod(y.shape[:3])
            batch[norm] = (mean, variance * (count / max(count - 1, 1)))
            z = (z - mean) * (lax.rsqrt(variance + 1e-5) * p[f"{norm}/gamma"]) + p[f"{norm}/beta"]
            return z.astype(x.dtype)

        x = jax.nn.relu(convolve("stem/conv", x.astype(compute), 2))
        border = ((0, 0), (1, 1), (1, 1), (0, 0))
        # A number of NumPy's: the gradient is known for that and not for an array that is traced.
        least = np.array(-np.inf, x.dtype)
        x = lax.reduce_window(x, least, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), border)
        for scope, _, stride, project in resnet_blocks():
            y = jax.nn.relu(convolve(f"{scope}/conv1", x))
            y = jax.nn.relu(convolve(f"{scope}/conv2", y, stride))
            y = convolve(f"{scope}/conv3", y)
            x = jax.nn.relu((convolve(f"{scope}/projection/conv", x, stride) if project else x) + y)
        return dense(p, "head", x.mean((1, 2))), batch

    return forward


def cross_entropy(prediction, y):
    """The loss of each position, in f32."""
    prediction = prediction.astype(jnp.float32)
    picked = jnp.take_along_axis(prediction, jnp.maximum(y, 0)[..., None], -1)[..., 0]
    return jax.nn.logsumexp(prediction, -1) - picked


def adam(p, slots, count, gradients, rate):
    """Parameters, slots and the count of steps after one more."""
    count = count + 1
    scale = rate / (1.0 - 0.9**count)
    correction = 1.0 - 0.999**count

    def update(p, slot, gradient):
        first = 0.9 * slot[0] + 0.1 * gradient
        second = 0.999 * slot[1] + 0.001 * jnp.square(gradient)
        return p - scale * first / (jnp.sqrt(second / correction) + 1e-8), (first, second)

    updated = {name: update(p[name], slots[name], gradients[name]) for name in p}
    p = {name: new for name, (new, _) in updated.items()}
    return p, {name: slot for name, (_, slot) in updated.items()}, count
