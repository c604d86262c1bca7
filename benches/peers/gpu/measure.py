"""How a peer is measured on the GPU: one process, one variant, one line of JSON.

A peer is a class. `Peer(workload, variant, device)` makes model and optimizer; `batch()` gives inputs and targets that
lie on the device, `place(x, y)` puts NumPy's there; `train(x, y)` starts a step, waits for nothing and returns its
loss, `wait(loss)` waits for all that was started and gives the loss as a number; `settle()` gives back what only the
first steps needed, and `memory()` says what was taken since.
"""

import argparse
import json
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(1, str(HERE.parent))

from driver import Driver  # noqa: E402
from plan import BLOCKS, STEPS, VARIANTS  # noqa: E402
from workload import FOLDER, Workload, batches  # noqa: E402

# Steps before anything is measured, and as many again after the memory of compiling has been given back.
WARM_UP = 4

# Where a peer compiles for each shape anew, lengths are rounded up to multiples of this.
BUCKET = 256


def load(name, tiny=False):
    """A workload by name or by the path of its file; tiny, it has all that it has, in a size for trying the scripts."""
    if name.endswith(".toml"):
        workload = Workload(Path(name).stem, Path(name).parent)
    else:
        workload = Workload(name, FOLDER if (FOLDER / f"{name}.toml").exists() else HERE)
    if tiny:
        workload.shrink()
    return workload


def quantile(values, part):
    values = sorted(values)
    return values[round((len(values) - 1) * part)]


def main(peer, versions, build):
    """Reads the command line, trains, prints. Time begins after the imports, before the first use of the device."""
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", choices=VARIANTS)
    parser.add_argument("variant")
    parser.add_argument("--device", default="cuda", help="cuda or cpu")
    parser.add_argument("--steps", type=int, help="steps of a block; where shapes vary, all steps")
    parser.add_argument("--blocks", type=int, default=BLOCKS)
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    workload = load(options.workload, options.tiny)
    steps = options.steps or STEPS[workload.name]
    driver = Driver() if options.device == "cuda" else None
    before = driver and driver.used()
    data = workload.data() if workload.varies else None

    begin = time.perf_counter()
    run = build(workload, options.variant.split("-"), options.device)
    result = {"name": workload.name, "peer": peer, "variant": options.variant}
    if workload.varies:
        bucket = BUCKET if "buckets" in options.variant else None
        for number, (x, y) in enumerate(batches(workload, data, steps, bucket)):
            loss = run.train(*run.place(x, y))
            if number == 0:
                losses = [run.wait(loss)]
                first = time.perf_counter() - begin
        losses.append(run.wait(loss))
        result |= {"steps": steps, "total_seconds": time.perf_counter() - begin}
    else:
        batch = run.batch()
        losses = [run.wait(run.train(*batch))]
        first = time.perf_counter() - begin
        for _ in range(WARM_UP):
            loss = run.train(*batch)
        run.wait(loss)
        run.settle()
        for _ in range(WARM_UP):
            loss = run.train(*batch)
        losses.append(run.wait(loss))
        blocks = []
        for _ in range(options.blocks):
            start = time.perf_counter()
            for _ in range(steps):
                loss = run.train(*batch)
            losses.append(run.wait(loss))
            blocks.append(1e3 * (time.perf_counter() - start) / steps)
        result |= {
            "steps": steps * options.blocks,
            "median_ms": quantile(blocks, 0.5),
            "spread_ms": [quantile(blocks, 0.1), quantile(blocks, 0.9)],
            "timing": f"wall time of {options.blocks} blocks of {steps} steps, waiting at the end of each",
        }
    result |= {"first_step_seconds": first, "losses": losses, **run.memory()}
    if driver:
        after = driver.used()
        if after is not None and before is not None:
            result["device_used_bytes"] = after - before
            result["device_used_before_bytes"] = before
        result |= {"gpu": driver.name, "driver": driver.version}
    print(json.dumps(result | {"versions": versions}), flush=True)
