"""What all peers on the CPU share: their threads, and how a step is measured."""

import json
import os
import sys
import time
from pathlib import Path

THREADS = 2

# Before anything with a thread pool is imported: pools are as large as the cores that the process may use.
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = str(THREADS)

from variants import variants  # noqa: E402
from workload import Workload, batches, first_weight  # noqa: E402

# Steps that are run and not counted, as in `plimsoll bench`.
WARM_UP = 3

# Where a peer compiles for each shape anew, lengths are rounded up to multiples of this.
BUCKET = 32


class Weights:
    """The first weights of a workload, one at a time; knows how long making them took."""

    def __init__(self, workload):
        self._workload = workload
        self.seconds = 0.0

    def __iter__(self):
        for name, shape, kind, scale in self._workload.parameters():
            start = time.perf_counter()
            values = first_weight(name, shape, kind, scale)
            self.seconds += time.perf_counter() - start
            yield name, values


def memory(field):
    """A line of this process's status, in bytes."""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def forget_peak():
    """Makes the peak what is resident now, so that imports and making data do not count."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pass


def measure(peer, version, build):
    """Reads the command line, trains, and prints one line of JSON.

    `build(workload, variant, weights)` gives a function of inputs and targets that trains a step and
    returns the loss when all its work is done, as a number.
    """
    if len(sys.argv) != 4:
        sys.exit(f"usage: {sys.argv[0]} WORKLOAD VARIANT STEPS")
    workload, variant, steps = Workload(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    known = variants(peer, workload.name)
    if variant not in known:
        sys.exit(f"{peer} has no variant {variant} of {workload.name}; there are {', '.join(known)}")
    bucket = BUCKET if "buckets" in variant else None
    # Where lengths vary, the time of all steps together is what counts, and none of them is left out.
    steps += 0 if workload.varies else WARM_UP
    data = workload.data()
    weights = Weights(workload)
    forget_peak()
    resident = memory("VmRSS")

    begin = time.perf_counter()
    train = build(workload, variant, weights)
    losses, times, first = [], [], 0.0
    for number, (x, y) in enumerate(batches(workload, data, steps, bucket)):
        start = time.perf_counter()
        losses.append(train(x, y))
        end = time.perf_counter()
        if number == 0:
            first = end - begin - weights.seconds
        times.append(end - start)
    total = time.perf_counter() - begin - weights.seconds
    times = sorted(times[WARM_UP:] or times)

    def at(part):
        return times[round((len(times) - 1) * part)]

    result = {
        "peer": peer,
        "variant": variant,
        "workload": workload.name,
        "median_s": at(0.5),
        "spread": [at(0.1), at(0.9)],
        "first_step_s": first,
        "total_s": total,
        "peak_rss_over_start_bytes": memory("VmHWM") - resident,
        "version": version,
        "steps": len(times),
        "threads": THREADS,
        "losses": losses[:5] + losses[-1:],
    }
    print(json.dumps(result), flush=True)
