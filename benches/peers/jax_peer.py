"""The workloads in JAX: one jitted step, weights and Adam's slots donated.

Where lengths vary, every new length would be compiled for seconds. So they are rounded up to a few and the
padding is masked, as JAX's users do.
"""

import common
import jax
import jax.numpy as jnp
from jax import lax


def sequential(workload):
    layers = list(workload.layers())

    def forward(p, x):
        for name, layer in layers:
            if "conv" in layer:
                numbers = ("NHWC", "HWIO", "NHWC")
                x = lax.conv_general_dilated(x, p[f"{name}/filter"], (1, 1), "SAME", dimension_numbers=numbers)
                x = x + p[f"{name}/bias"]
            elif "dense" in layer:
                x = x @ p[f"{name}/weight"] + p[f"{name}/bias"]
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


def norm(p, name, x):
    mean = x.mean(-1, keepdims=True)
    variance = jnp.square(x - mean).mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-5) * p[f"{name}/gamma"] + p[f"{name}/beta"]


def gpt(workload):
    layers, heads = workload.model["layers"], workload.model["heads"]

    def dense(p, name, x):
        return x @ p[f"{name}/weight"] + p[f"{name}/bias"]

    def forward(p, tokens):
        x = p["tokens/table"][tokens] + p["positions/table"][: tokens.shape[1]]
        batch, length, width = x.shape
        for i in range(layers):
            block = f"block{i}"
            qkv = dense(p, f"{block}/attention/qkv", norm(p, f"{block}/ln1", x))
            q, k, v = (part.reshape(batch, length, heads, -1) for part in jnp.split(qkv, 3, -1))
            mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True)
            x = x + dense(p, f"{block}/attention/out", mixed.reshape(batch, length, width))
            up = dense(p, f"{block}/mlp/up", norm(p, f"{block}/ln2", x))
            x = x + dense(p, f"{block}/mlp/down", jax.nn.gelu(up, approximate=False))
        return norm(p, "ln", x) @ p["head/weight"]

    return forward


def build(workload, variant, weights):
    forward = gpt(workload) if workload.model["kind"] == "gpt" else sequential(workload)

    def loss_of(p, x, y):
        prediction = forward(p, x)
        if workload.loss == "mse":
            return jnp.square(prediction - y).mean()
        picked = jnp.take_along_axis(prediction, jnp.maximum(y, 0)[..., None], -1)[..., 0]
        losses = jax.nn.logsumexp(prediction, -1) - picked
        if variant != "jit-buckets":
            return losses.mean()
        real = y != common.PADDING
        return jnp.where(real, losses, 0.0).sum() / real.sum()

    def step(p, slots, count, x, y):
        loss, gradients = jax.value_and_grad(loss_of)(p, x, y)
        count = count + 1
        scale = workload.rate / (1.0 - 0.9**count)
        correction = 1.0 - 0.999**count

        def update(p, slot, gradient):
            first = 0.9 * slot[0] + 0.1 * gradient
            second = 0.999 * slot[1] + 0.001 * jnp.square(gradient)
            return p - scale * first / (jnp.sqrt(second / correction) + 1e-8), (first, second)

        updated = {name: update(p[name], slots[name], gradients[name]) for name in p}
        p = {name: new for name, (new, _) in updated.items()}
        slots = {name: slot for name, (_, slot) in updated.items()}
        return p, slots, count, loss

    step = jax.jit(step, donate_argnums=(0, 1, 2))
    # Copied, since a donated buffer must be JAX's own.
    p = {name: jnp.array(values) for name, values in weights}
    slots = {name: (jnp.zeros_like(values), jnp.zeros_like(values)) for name, values in p.items()}
    state = (p, slots, jnp.float32(0.0))
    del p, slots

    def train(x, y):
        nonlocal state
        *state, loss = step(*state, x, y)
        jax.block_until_ready((state, loss))
        return float(loss)

    return train


if __name__ == "__main__":
    common.measure("jax", jax.__version__, build)
