"""The workloads: their models, data, first weights and lengths, as Plimsoll has them.

They are read from the very files that Plimsoll reads, and the random numbers are Plimsoll's, so that every peer
starts from the same weights, sees the same batches, and reports losses that can be compared.
"""

import math
import tomllib
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).resolve().parents[2] / "crates" / "plimsoll" / "workloads"

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


def order(samples, epoch):
    """Which samples an epoch of training visits, in order, for the seed 0: a shuffle as a function of the position."""
    rows = max(math.isqrt(samples), 16)
    columns = max(-(-samples // rows), 16)
    key = word(word(word(0, 0), 2), epoch)

    def rotate(place, turn, other, length):
        return (place + below(word(key, (turn << 40) | other), length).astype(np.uint64)) % np.uint64(length)

    def exchange(cells):
        row, column = cells // np.uint64(columns), cells % np.uint64(columns)
        for turn in range(0, 6, 2):
            row = rotate(row, turn, column, rows)
            column = rotate(column, turn + 1, row, columns)
        return row * np.uint64(columns) + column

    cells = exchange(np.arange(samples, dtype=np.uint64))
    while (beyond := cells >= samples).any():
        cells[beyond] = exchange(cells[beyond])
    return cells.astype(np.int64)


def philox(position, stream, step):
    """The first two of the four words of Philox4x32-10, for the seed 0; see `plimsoll-graph/src/random.rs`.

    `position` is an array of signed 64-bit numbers, NumPy's or PyTorch's. Products wrap around; only their bits count.
    """
    mask = 0xFFFFFFFF
    a, b = position & mask, position >> 32
    c, d = b * 0 + stream, b * 0 + step
    low, high = 0, 0
    for _ in range(10):
        product_a, product_c = a * 0xD2511F53, c * 0xCD9E8D57
        a, b = (product_c >> 32 & mask) ^ b ^ low, product_c & mask
        c, d = (product_a >> 32 & mask) ^ d ^ high, product_a & mask
        low, high = (low + 0x9E3779B9) & mask, (high + 0xBB67AE85) & mask
    return a, b


def first_weight(name, shape, kind, scale, library=np, part=1 << 16):
    """A parameter's first values: a function of its name and the position alone.

    `library` is the one that computes, NumPy or PyTorch, on its default device, so many values at a time.
    """
    if kind == "constant":
        return library.full(shape, scale, dtype=library.float32)
    stream = 0x811C9DC5
    for byte in name.encode():
        stream = (stream ^ byte) * 0x01000193 & 0xFFFFFFFF
    stream |= 1 << 31
    values = library.empty(math.prod(shape), dtype=library.float32)
    for start in range(0, len(values), part):
        positions = library.arange(start, min(start + part, len(values)), dtype=library.int64)
        first, second = (
            library.asarray(words >> 8, dtype=library.float64) for words in philox(positions, stream, 0)
        )
        if kind == "uniform":
            numbers = 2.0 * (first / 2**24) - 1.0
        else:
            radius = library.sqrt(-2.0 * library.log((first + 1.0) / 2**24))
            numbers = radius * library.cos(2.0 * math.pi * (second / 2**24))
        values[start : start + part] = numbers * scale
    return values.reshape(shape)


# ResNet-50: the width inside the blocks of a stage, and how many blocks it has. Outside, blocks are four times as wide.
STAGES = [(64, 3), (128, 4), (256, 6), (512, 3)]


def resnet_blocks():
    """Scope, width inside and stride of each block, and whether it projects its input."""
    for stage, (width, blocks) in enumerate(STAGES):
        for block in range(blocks):
            yield f"stage{stage}/block{block}", width, 2 if stage > 0 and block == 0 else 1, block == 0


def resnet_convolutions(channels):
    """Name, inputs, filters, extent and stride of each convolution; its norm is called as it is, with `norm`."""
    yield "stem/conv", channels, 64, 7, 2
    inputs = 64
    for scope, width, stride, project in resnet_blocks():
        yield f"{scope}/conv1", inputs, width, 1, 1
        yield f"{scope}/conv2", width, width, 3, stride
        yield f"{scope}/conv3", width, 4 * width, 1, 1
        if project:
            yield f"{scope}/projection/conv", inputs, 4 * width, 1, stride
        inputs = 4 * width


class Workload:
    """A workload of Plimsoll's, by name."""

    def __init__(self, name, folder=FOLDER):
        with open(folder / f"{name}.toml", "rb") as file:
            spec = tomllib.load(file)
        self.name = name
        self.loss = spec["loss"]
        self.model = spec["model"]
        self.rate = spec["optimizer"]["rate"]
        self.precision = spec["train"].get("precision", "f32")
        self.batch = spec["train"]["batch"]
        self.batches = spec["train"].get("batches")
        self.lengths = spec["train"].get("lengths")
        self._data = spec["data"]

    @property
    def features(self):
        """The shape of a sample's inputs, where they are not tokens."""
        return self._data["features"]

    @property
    def target(self):
        """The shape of a sample's target, where it is numbers."""
        return self._data["target"]

    @property
    def classes(self):
        """How many classes a sample's target is one of."""
        return self._data["classes"]

    @property
    def tokens(self):
        """How many tokens a sample has."""
        return self._data["length"]

    def shrink(self):
        """Makes everything as small as it goes while it stays what it is, for trying scripts."""
        self.batch, model, data = 2, self.model, self._data
        data["samples"] = 16
        if model["kind"] == "gpt":
            model |= {"layers": 2, "width": 32, "heads": 2, "context": 32, "vocabulary": 101}
            data |= {"length": 32, "vocabulary": 101}
            self.batches = self.batches and [1, 2, 3, 4]
            self.lengths = self.lengths and [8, 32]
        elif model["kind"] == "resnet50":
            data["features"] = [64, 64, 3]
        else:
            data |= {name: [32] for name in ("features", "target") if name in data}
            model["layers"] = [layer | {"dense": 64} for layer in model["layers"][:-1]] + [
                {"dense": data["target"][0] if "target" in data else data["classes"]}
            ]

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
        inputs = normal_values(0, samples, self.features)
        if "target" in data:
            return inputs, normal_values(1, samples, data["target"])
        return inputs, below(word(word(stream_key(1), np.arange(samples)), 0), data["classes"])

    def length(self, step):
        """The length that sequences are cropped to in a step."""
        shortest, longest = self.lengths
        return shortest + self.draw(1 << 30, step, longest - shortest + 1)

    def size(self, step):
        """The samples of a step."""
        return self.batches[self.draw((1 << 30) + 1, step, len(self.batches))] if self.batches else self.batch

    @staticmethod
    def draw(stream, step, choices):
        """A whole number below `choices`, for a step."""
        return int(philox(np.zeros(1, np.int64), stream, step)[0][0]) * choices >> 32

    def parameters(self):
        """Name, shape, distribution and its scale, of each parameter."""
        if self.model["kind"] == "gpt":
            yield from self._gpt_parameters()
            return
        if self.model["kind"] == "resnet50":
            yield from self._resnet_parameters()
            return
        shape = tuple(self.features)
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
        if not model.get("tied_head"):
            yield "head/weight", (width, vocabulary), "normal", 0.02

    def _resnet_parameters(self):
        for name, inputs, filters, extent, _ in resnet_convolutions(self.features[-1]):
            filter_shape = (extent, extent, inputs, filters)
            yield f"{name}/filter", filter_shape, "normal", math.sqrt(2.0 / (extent * extent * inputs))
            norm = name.replace("conv", "norm")
            yield f"{norm}/gamma", (filters,), "constant", 1.0
            yield f"{norm}/beta", (filters,), "constant", 0.0
        inputs, classes = 4 * STAGES[-1][0], self.model["classes"]
        yield "head/weight", (inputs, classes), "uniform", math.sqrt(6.0 / (inputs + classes))
        yield "head/bias", (classes,), "constant", 0.0


def batches(workload, data, steps, bucket=None, shuffled=False):
    """The inputs and targets of each step: samples cropped to the step's length.

    They come in order, as in `plimsoll bench`, or shuffled, as in `plimsoll train`. With a bucket, lengths are rounded
    up to a multiple of it, and targets beyond the length are `PADDING`.
    """
    inputs, targets = data
    first, epoch, samples = 0, 0, None
    for step in range(steps):
        size = workload.size(step)
        if first + size > len(inputs):
            first, epoch = 0, epoch + 1
        if shuffled and first == 0:
            samples = order(len(inputs), epoch)
        chosen = slice(first, first + size)
        x, y = (field[samples[chosen] if shuffled else chosen] for field in (inputs, targets))
        first += size
        if workload.varies:
            length = workload.length(step)
            padded = min(-(-length // bucket) * bucket, workload.lengths[1]) if bucket else length
            x, y = x[:, :padded].copy(), y[:, :padded].copy()
            y[:, length:] = PADDING
        yield x, y
