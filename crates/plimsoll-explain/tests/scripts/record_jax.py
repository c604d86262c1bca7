"""Records profiles, logs and device memory profiles of small JAX programs on a GPU, one scenario a process.

    XLA_PYTHON_CLIENT_MEM_FRACTION=0.03 python3 record_jax.py SCENARIO FOLDER 2> LOG
"""
import os, sys, random
name, out = sys.argv[1], sys.argv[2]
import jax, jax.numpy as jnp, numpy as np
random.seed(0)
dev=jax.devices()[0]
def block(mib): return jax.device_put(np.zeros((mib*2**20,), np.uint8), dev)
def stats(): print("STATS", dev.memory_stats(), flush=True)
profile = not name.endswith("-log")
if profile: jax.profiler.start_trace(f"{out}/jax-{name}")
try:
    if name.startswith("seq"):
        live=[]
        for i in range(400):
            if live and random.random() < 0.45: live.pop(random.randrange(len(live)))
            else: live.append(block(random.randint(1,40)))
            if sum(a.nbytes for a in live) > 1500*2**20: live.pop(0)
        stats()
    elif name.startswith("train"):
        def f(p,x):
            for w in p: x=jnp.tanh(x@w)
            return (x**2).mean()
        p=[jax.random.normal(jax.random.key(i),(1024,1024))*.03 for i in range(6)]
        g=jax.jit(lambda p,x:[w-.1*d for w,d in zip(p,jax.grad(f)(p,x))])
        for i in range(20):
            x=jnp.ones((random.choice([64,128,192]),1024)); p=g(p,x); jax.block_until_ready(p)
        stats()
    elif name.startswith("toobig"):
        a=block(200); b=jnp.zeros((6*2**30,),jnp.uint8); b.block_until_ready()
    elif name.startswith("leak"):
        kept=[]
        for i in range(2000): kept.append(block(24)+1)
    elif name.startswith("frag"):
        live=[block(random.randint(20,60)) for i in range(60)]
        live=[a for i,a in enumerate(live) if i%2]
        import gc; gc.collect(); stats()
        b=jnp.zeros((1200*2**20,),jnp.uint8); b.block_until_ready()
except Exception as e:
    print("EXC", type(e).__name__, str(e)[:1500], flush=True); stats()
if profile: jax.profiler.stop_trace()
try: jax.profiler.save_device_memory_profile(f"{out}/jax-{name}.pprof")
except Exception as e: print("pprof", e)
