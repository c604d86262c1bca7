"""The workloads in JAX: one jitted step, weights and Adam's slots donated.

Where lengths vary, every new length would be compiled for seconds. So they are rounded up to a few and the
padding is masked, as JAX's users do.
"""

import common
import jax
import jax.numpy as jnp
from jax_models import adam, cross_entropy, gpt, sequential
from workload import PADDING


def build(workload, variant, weights):
    forward = gpt(workload) if workload.model["kind"] == "gpt" else sequential(workload)

    def loss_of(p, x, y):
        prediction = forward(p, x)
        if workload.loss == "mse":
            return jnp.square(prediction - y).mean()
        losses = cross_entropy(prediction, y)
        if variant != "jit-buckets":
            return losses.mean()
        real = y != PADDING
        return jnp.where(real, losses, 0.0).sum() / real.sum()

    def step(p, slots, count, x, y):
        loss, gradients = jax.value_and_grad(loss_of)(p, x, y)
        return *adam(p, slots, count, gradients, workload.rate), loss

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
