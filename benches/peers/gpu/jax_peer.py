"""The workloads in JAX on the GPU: one jitted step, weights, slots and statistics donated.

bf16 is the type of activations; parameters are f32 and are converted where they are used. Words of a variant: `cudnn`
and `xla` are who computes attention; `buckets` rounds lengths up and masks the padding, since each shape is compiled.
"""

import os
import sys

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
if "cpu" in sys.argv:
    os.environ.setdefault("JAX_PLATFORMS", "cpu")

import measure  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax_models import adam, cross_entropy, gpt, resnet50, sequential  # noqa: E402
from workload import PADDING  # noqa: E402


def draw(workload):
    """First weights of the right distributions, drawn on the device."""
    key = jax.random.key(0)
    for number, (name, shape, kind, scale) in enumerate(workload.parameters()):
        own = jax.random.fold_in(key, number)
        if kind == "constant":
            yield name, jnp.full(shape, scale, jnp.float32)
        elif kind == "uniform":
            yield name, jax.random.uniform(own, shape, jnp.float32, -scale, scale)
        else:
            yield name, scale * jax.random.normal(own, shape, jnp.float32)


class Peer:
    def __init__(self, workload, variant, device):
        self.workload = workload
        self.on = jax.devices()[0]
        if device == "cuda" and self.on.platform != "gpu":
            raise RuntimeError(f"JAX has no GPU here, its first device is {self.on}")
        compute = jnp.bfloat16 if workload.precision == "bf16" else jnp.float32
        kind = workload.model["kind"]
        if kind == "gpt":
            attention = "cudnn" if "cudnn" in variant and device == "cuda" else "xla"
            plain = gpt(workload, compute, attention)
        elif kind != "resnet50":
            layers = sequential(workload)
        # Beside the prediction, the statistics of the batch.
        forward = {
            "gpt": lambda p, x: (plain(p, x), {}),
            "resnet50": resnet50(compute),
            "sequential": lambda p, x: (layers(p, x.astype(compute)), {}),
        }[kind]

        def loss_of(p, x, y):
            prediction, statistics = forward(p, x)
            if workload.loss == "mse":
                return jnp.square(prediction.astype(jnp.float32) - y).mean(), statistics
            losses = cross_entropy(prediction, y)
            if "buckets" not in variant:
                return losses.mean(), statistics
            real = y != PADDING
            return jnp.where(real, losses, 0.0).sum() / real.sum(), statistics

        def step(p, slots, count, running, x, y):
            (loss, batch), gradients = jax.value_and_grad(loss_of, has_aux=True)(p, x, y)
            running = jax.tree.map(lambda old, new: 0.9 * old + 0.1 * new, running, batch)
            return *adam(p, slots, count, gradients, workload.rate), running, loss

        self._step = jax.jit(step, donate_argnums=(0, 1, 2, 3))
        p = dict(draw(workload))
        slots = {name: (jnp.zeros_like(values), jnp.zeros_like(values)) for name, values in p.items()}
        running = {
            name.removesuffix("/gamma"): (jnp.zeros_like(values), jnp.ones_like(values))
            for name, values in p.items()
            if kind == "resnet50" and name.endswith("/gamma")
        }
        self.state = (p, slots, jnp.float32(0.0), running)

    def train(self, x, y):
        *self.state, loss = self._step(*self.state, x, y)
        return loss

    def batch(self):
        workload = self.workload
        keys = jax.random.split(jax.random.key(1))
        if workload.model["kind"] == "gpt":
            shape = (workload.batch, workload.tokens)
            return [jax.random.randint(key, shape, 0, workload.model["vocabulary"]) for key in keys]
        x = jax.random.normal(keys[0], (workload.batch, *workload.features))
        if workload.loss == "mse":
            return [x, jax.random.normal(keys[1], (workload.batch, *workload.target))]
        return [x, jax.random.randint(keys[1], (workload.batch,), 0, workload.classes)]

    def place(self, x, y):
        return jax.device_put([x, y])

    def wait(self, loss):
        jax.block_until_ready((self.state, loss))
        return float(loss)

    def settle(self):
        pass

    def memory(self):
        statistics = self.on.memory_stats() or {}
        reserved = [statistics.get(name) for name in ("peak_pool_bytes", "pool_bytes", "peak_bytes_reserved")]
        return {
            "peak_allocated_bytes": statistics.get("peak_bytes_in_use"),
            "peak_reserved_bytes": max(filter(None, reserved), default=None),
            "memory_stats": statistics,
        }


if __name__ == "__main__":
    try:
        import jaxlib

        library = jaxlib.__version__
    except (ImportError, AttributeError):
        library = None
    measure.main("jax", {"jax": jax.__version__, "jaxlib": library, "python": sys.version.split()[0]}, Peer)
