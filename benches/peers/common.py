"""What all peers share: the workloads, their data and first weights, and how a step is measured.

The workloads are read from the very files that Plimsoll reads, and the random numbers are Plimsoll's, so
that every peer starts from the same weights, sees the same batches, and reports losses that can be compared.
"""

import json
import math
import os
import sys
import time
from pathlib import Path

THREADS = 2

# Before anything with a thread pool is imported: pools are as large as the cores that the process may use.
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = str(THREADS)

import numpy as np  # noqa: E402
import tomllib  # noqa: E402
from variants import variants  # noqa: E402

FOLDER = Path(__file__).resolve().parents[2] / "crates" / "plimsoll" / "workloads"

# Steps that are run and not counted, as in `plimsoll bench`.
WARM_UP = 3

# Where a peer compiles for each shape anew, lengths are rounded up to multiples of this.
BUCKET = 32

# The target of a position that is padding.
PADDING = -1


# Random numbers: SplitMix64 for data, Philox4x32-10 for weights and lengths, each read at a position.


def word(key, counter):
    """Data's random word at (key, counter); see `plimsoll-data/src/random.rs`."""
    with np.errstate(over="ignore"):
        z = np.uint64(key) + (np.asarray(counter, np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def stream_key(field):
    """The key of a field's values, for the seed 0."""
    return word(word(word(0, 0), 0), field)


def below(words, bound):
    """Words as whole numbers in 0..bound: the upper half of a product of 128 bits."""
    high, low = words >> np.uint64(32), words & np.uint64(0xFFFFFFFF)
    bound = np.uint64(bound)
    return ((high * bound + (low * bound >> np.uint64(32))) >> np.uint64(32)).astype(np.int32)


def normal_values(field, samples, shape):
    """Independent standard normal numbers, by Box and Muller."""
    elements = math.prod(shape)
    values = np.empty((samples, elements), np.float32)
    pairs = np.arange((elements + 1) // 2, dtype=np.uint64)
    for sample in range(samples):
        words = word(word(stream_key(field), sample), pairs)
        radius = np.sqrt(-2.0 * np.log(((words >> np.uint64(32)).astype(np.float64) + 0.5) / 2**32))
        angle = 2.0 * np.pi * (words & np.uint64(0xFFFFFFFF)).astype(np.float64) / 2**32
        both = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
        values[sample] = both.reshape(-1)[:elements]
    return values.reshape(samples, *shape)


def philox(position, stream, step):
    """The first two of the four words of Philox4x32-10, for the seed 0; see `plimsoll-graph/src/random.rs`."""
    mask = np.uint64(0xFFFFFFFF)
    a = np.asarray(position, np.uint64)
    b, c, d = np.zeros_like(a), np.full_like(a, stream), np.full_like(a, step)
    low, high = 0, 0
    for _ in range(10):
        product_a, product_c = a * np.uint64(0xD2511F53), c * np.uint64(0xCD9E8D57)
        a, b = (product_c >> np.uint64(32)) ^ b ^ np.uint64(low), product_c & mask
        c, d = (product_a >> np.uint64(32)) ^ d ^ np.uint64(high), product_a & mask
        low, high = (low + 0x9E3779B9) & 0xFFFFFFFF, (high + 0xBB67AE85) & 0xFFFFFFFF
    return a, b


def first_weight(name, shape, kind, scale):
    """A parameter's first values: a function of its name and the position alone."""
    if kind == "constant":
        return np.full(shape, scale, np.float32)
    stream = 0x811C9DC5
    for byte in name.encode():
        stream = (stream ^ byte) * 0x01000193 & 0xFFFFFFFF
    stream |= 1 << 31
    values = np.empty(math.prod(shape), np.float32)
    for start in range(0, values.size, 1 << 16):
        part = values[start : start + (1 << 16)]
        first, second = philox(np.arange(start, start + part.size, dtype=np.uint64), stream, 0)
        first, second = (first >> np.uint64(8)).astype(np.float64), (second >> np.uint64(8)).astype(np.float64)
        if kind == "uniform":
            part[:] = (2.0 * (first / 2**24) - 1.0) * scale
        else:
            radius = np.sqrt(-2.0 * np.log((first + 1.0) / 2**24))
            part[:] = radius * np.cos(2.0 * np.pi * (second / 2**24)) * scale
    return values.reshape(shape)


class Workload:
    """A workload of Plimsoll's, by name."""

    def __init__(self, name):
        with open(FOLDER / f"{name}.toml", "rb") as file:
            spec = tomllib.load(file)
        self.name = name
        self.loss = spec["loss"]
        self.model = spec["model"]
        self.rate = spec["optimizer"]["rate"]
        self.batch = spec["train"]["batch"]
        self.lengths = spec["train"].get("lengths")
        self._data = spec["data"]

    @property
    def varies(self):
        """Whether each step has a length of its own."""
        return self.lengths is not None

    def data(self):
        """All inputs and all targets."""
        data = self._data
        samples = data["samples"]
        if data["kind"] == "synthetic-tokens":
            keys = word(stream_key(0), np.arange(samples))[:, None]
            stream = np.arange(data["length"] + 1, dtype=np.uint64)[None, :]
            tokens = below(word(keys, stream), data["vocabulary"])
            return np.ascontiguousarray(tokens[:, :-1]), np.ascontiguousarray(tokens[:, 1:])
        inputs = normal_values(0, samples, data["features"])
        if "target" in data:
            return inputs, normal_values(1, samples, data["target"])
        return inputs, below(word(word(stream_key(1), np.arange(samples)), 0), data["classes"])

    def length(self, step):
        """The length that sequences are cropped to in a step."""
        shortest, longest = self.lengths
        drawn = int(philox(0, 1 << 30, step)[0]) * (longest - shortest + 1) >> 32
        return shortest + drawn

    def parameters(self):
        """Name, shape, distribution and its scale, of each parameter."""
        if self.model["kind"] == "gpt":
            yield from self._gpt_parameters()
            return
        shape = tuple(self._data["features"])
        for name, layer in self.layers():
            if "conv" in layer:
                window, channels = layer["window"], layer["conv"]
                fan_in = window * window * shape[-1]
                filter_shape = (window, window, shape[-1], channels)
                yield f"{name}/filter", filter_shape, "normal", math.sqrt(2.0 / fan_in)
                yield f"{name}/bias", (channels,), "constant", 0.0
                shape = (*shape[:-1], channels)
            elif "dense" in layer:
                units = layer["dense"]
                yield f"{name}/weight", (shape[-1], units), "uniform", math.sqrt(6.0 / (shape[-1] + units))
                yield f"{name}/bias", (units,), "constant", 0.0
                shape = (units,)
            elif "max_pool" in layer:
                shape = (shape[0] // layer["max_pool"], shape[1] // layer["max_pool"], shape[2])
            else:
                shape = shape[-1:]

    def layers(self):
        """The layers of a sequential model, each with the name that Plimsoll gives it."""
        counts = {}
        for layer in self.model["layers"]:
            layer = {layer: True} if isinstance(layer, str) else layer
            kind = next(iter(layer))
            count = counts.get(kind, 0)
            counts[kind] = count + 1
            yield f"{kind}{count}", layer

    def _gpt_parameters(self):
        model = self.model
        width, layers, vocabulary = model["width"], model["layers"], model["vocabulary"]
        small = 0.02 / math.sqrt(2.0 * layers)
        yield "tokens/table", (vocabulary, width), "normal", 0.02
        yield "positions/table", (model["context"], width), "normal", 0.02
        for block in range(layers):
            for norm, product, inputs, outputs, scale in (
                ("ln1", "attention/qkv", width, 3 * width, 0.02),
                (None, "attention/out", width, width, small),
                ("ln2", "mlp/up", width, 4 * width, 0.02),
                (None, "mlp/down", 4 * width, width, small),
            ):
                if norm:
                    yield f"block{block}/{norm}/gamma", (width,), "constant", 1.0
                    yield f"block{block}/{norm}/beta", (width,), "constant", 0.0
                yield f"block{block}/{product}/weight", (inputs, outputs), "normal", scale
                yield f"block{block}/{product}/bias", (outputs,), "constant", 0.0
        yield "ln/gamma", (width,), "constant", 1.0
        yield "ln/beta", (width,), "constant", 0.0
        yield "head/weight", (width, vocabulary), "normal", 0.02


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


def batches(workload, data, steps, bucket):
    """The inputs and targets of each step: samples in order, cropped to the step's length.

    With a bucket, lengths are rounded up to a multiple of it, and targets beyond the length are `PADDING`.
    """
    inputs, targets = data
    per_epoch = len(inputs) // workload.batch
    for step in range(steps):
        first = step % per_epoch * workload.batch
        x, y = (field[first : first + workload.batch] for field in (inputs, targets))
        if workload.varies:
            length = workload.length(step)
            padded = min(-(-length // bucket) * bucket, workload.lengths[1]) if bucket else length
            x, y = x[:, :padded].copy(), y[:, :padded].copy()
            y[:, length:] = PADDING
        yield x, y


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
