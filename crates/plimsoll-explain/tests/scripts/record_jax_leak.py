"""Records the profile of a JAX program that keeps an array of each step (leak2), or does not (fine2).

    python3 record_jax_leak.py SCENARIO FOLDER
"""
import sys, random
name, out = sys.argv[1], sys.argv[2]
import jax, jax.numpy as jnp, numpy as np
jax.profiler.start_trace(f"{out}/jax-{name}")
def step(p,x):
    def f(p): return jnp.mean((jnp.tanh(x@p["a"])@p["b"])**2)
    l,g=jax.value_and_grad(f)(p); return {k:p[k]-.1*g[k] for k in p}, l
step=jax.jit(step)
p={"a":jnp.ones((1024,1024))*.01,"b":jnp.ones((1024,256))*.01}
kept=[]
def keep(i,x): kept.append(x*float(i))
for i in range(40):
    x=jnp.ones((256,1024))*i
    p,l=step(p,x)
    if name=="leak2": keep(i,x)
jax.block_until_ready(p); jax.profiler.stop_trace()
