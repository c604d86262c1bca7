"""One peer on one task: reads one epoch, prints rows a second and the peak of its memory over what imports take.

usage: peer.py PEER TASK FOLDER | --list
"""

import itertools
import json
import os
import resource
import sys
import threading
import time
from pathlib import Path

import numpy as np

BATCH = 256
IMAGES = 32
SIZE = 224
WORKERS = 2
# Rows of tokens, how many are a batch, and how many texts are tokenised at once.
LENGTH = 1024
ROWS = 16
TEXTS = 256


def resident():
    with open("/proc/self/status") as status:
        fields = dict(line.split(":", 1) for line in status)
    return int(fields["VmRSS"].split()[0]) * 1024


def peak():
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return own * 1024


class Workers:
    """What processes that this one starts take by themselves, at most together: pages that only they have written to."""

    def __init__(self):
        self.most, self.ended = 0, threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    def watch(self):
        while not self.ended.wait(0.05):
            children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
            self.most = max(self.most, sum(map(self.written, children)))

    @staticmethod
    def written(process):
        try:
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
            return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_Dirty"))
        except OSError:
            return 0

    def end(self):
        self.ended.set()
        self.thread.join()
        return self.most


# Tokens, for all of them: the library's fastest way, which does without offsets.


def tokenizer(folder):
    from tokenizers import Tokenizer

    bpe = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def encode(lines):
        """The tokens of texts in lines of JSON, one text after the other."""
        texts = [json.loads(line)["text"] for line in lines]
        return np.concatenate([np.asarray(found.ids, "i4") for found in bpe.encode_batch_fast(texts)])

    return encode


class Packed:
    """Tokens in rows of one length, with what is left over kept for the next row."""

    def __init__(self):
        self.left = np.empty(0, "i4")

    def rows(self, tokens):
        tokens = np.concatenate([self.left, tokens])
        whole = len(tokens) // LENGTH * LENGTH
        self.left = tokens[whole:]
        return tokens[:whole].reshape(-1, LENGTH)


def batches_of(rows):
    """Rows in batches of ROWS, from arrays of any number of them."""
    waiting, count = [], 0
    for some in rows:
        waiting.append(some)
        count += len(some)
        if count >= ROWS:
            together = np.concatenate(waiting)
            whole = count // ROWS * ROWS
            yield from np.split(together[:whole], count // ROWS)
            waiting, count = [together[whole:]], count - whole
    if count:
        yield np.concatenate(waiting)


def chunks(lines, size):
    while some := list(itertools.islice(lines, size)):
        yield some


# tf.data


def tf_npy(folder):
    import tensorflow as tf

    # In memory, as its guide says for arrays: by far its fastest way to shuffle them.
    x, y = np.load(folder / "x.npy"), np.load(folder / "y.npy")
    data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(10_000).batch(BATCH).prefetch(tf.data.AUTOTUNE)
    return data, lambda batch: len(batch[1])


def tf_npy_mapped(folder):
    import tensorflow as tf

    x, y = np.load(folder / "x.npy", mmap_mode="r"), np.load(folder / "y.npy", mmap_mode="r")
    read = lambda n: tf.numpy_function(lambda n: (x[n], y[n]), [n], (tf.float32, tf.int32))
    data = tf.data.Dataset.range(len(y)).shuffle(len(y)).batch(BATCH)
    data = data.map(read, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
    return data, lambda batch: len(batch[1])


def tf_csv(folder):
    import tensorflow as tf

    defaults = [0.0] * 16 + [0]

    def parse(lines):
        columns = tf.io.decode_csv(lines, defaults)
        return tf.stack(columns[:-1], axis=1), columns[-1]

    # Lines are parsed a batch at a time and in parallel: several times faster than CsvDataset.
    data = tf.data.TextLineDataset(str(folder / "rows.csv"), buffer_size=1 << 20).skip(1).batch(BATCH)
    data = data.map(parse, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
    return data, lambda batch: len(batch[1])


def tf_tfrecord(folder):
    import tensorflow as tf

    spec = {"features": tf.io.FixedLenFeature([64], tf.float32), "label": tf.io.FixedLenFeature([], tf.int64)}
    data = tf.data.TFRecordDataset(str(folder / "rows.tfrecord"), buffer_size=1 << 20).shuffle(10_000).batch(BATCH)
    data = data.map(lambda rows: tf.io.parse_example(rows, spec), num_parallel_calls=tf.data.AUTOTUNE)
    return data.prefetch(tf.data.AUTOTUNE), lambda batch: len(batch["label"])


def tf_jpeg(folder):
    import tensorflow as tf

    files = sorted((folder / "images").glob("*/*.jpg"))
    labels = [int(file.parent.name[5:]) for file in files]

    def decode(path, label):
        image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3, dct_method="INTEGER_FAST")
        image = tf.cast(tf.image.resize(image, [SIZE, SIZE]), tf.uint8)
        return tf.image.random_flip_left_right(image), label

    data = tf.data.Dataset.from_tensor_slices(([str(file) for file in files], labels)).shuffle(len(files))
    data = data.map(decode, num_parallel_calls=tf.data.AUTOTUNE).batch(IMAGES).prefetch(tf.data.AUTOTUNE)
    return data, lambda batch: len(batch[1])


def tf_tokens(folder):
    import tensorflow as tf

    encode, packed = tokenizer(folder), Packed()
    # Tokens in parallel, a few hundred texts at a time; rows of them in order.
    data = tf.data.TextLineDataset(str(folder / "texts.jsonl"), buffer_size=1 << 20).batch(TEXTS)
    data = data.map(lambda lines: tf.numpy_function(encode, [lines], tf.int32), num_parallel_calls=tf.data.AUTOTUNE)
    data = data.map(lambda tokens: tf.ensure_shape(tf.numpy_function(packed.rows, [tokens], tf.int32), [None, LENGTH]))
    data = data.unbatch().batch(ROWS).prefetch(tf.data.AUTOTUNE)
    return data, len


# PyTorch's DataLoader


class TorchRows:
    """Whole batches by fancy indexing: without it, DataLoader reads and collates row by row."""

    def __init__(self, folder):
        self.x = np.load(folder / "x.npy", mmap_mode="r")
        self.y = np.load(folder / "y.npy", mmap_mode="r")

    def __len__(self):
        return len(self.y)

    def __getitem__(self, batch):
        import torch

        return torch.from_numpy(self.x[batch]), torch.from_numpy(self.y[batch])


def torch_npy(folder, workers):
    from torch.utils.data import BatchSampler, DataLoader, RandomSampler

    rows = TorchRows(folder)
    sampler = BatchSampler(RandomSampler(rows), BATCH, drop_last=False)
    return DataLoader(rows, sampler=sampler, batch_size=None, num_workers=workers), lambda batch: len(batch[1])


def torch_table(open_batches, workers):
    import torch
    from torch.utils.data import DataLoader, IterableDataset

    class Rows(IterableDataset):
        def __iter__(self):
            for block in open_batches():
                x = np.stack([column.to_numpy(zero_copy_only=False) for column in block.columns[:-1]], axis=1)
                y = block.columns[-1].to_numpy(zero_copy_only=False)
                for first in range(0, len(y), BATCH):
                    yield torch.from_numpy(x[first : first + BATCH].astype("f4", copy=False)), torch.from_numpy(y[first : first + BATCH].copy())

    return DataLoader(Rows(), batch_size=None, num_workers=workers), lambda batch: len(batch[1])


def torch_csv(folder, workers):
    import pyarrow.csv

    return torch_table(lambda: pyarrow.csv.open_csv(folder / "rows.csv"), workers)


def torch_parquet(folder, workers):
    import pyarrow.parquet

    return torch_table(lambda: pyarrow.parquet.ParquetFile(folder / "rows.parquet").iter_batches(65_536), workers)


def torch_tokens(folder, workers):
    import torch
    from torch.utils.data import DataLoader, IterableDataset, get_worker_info

    class Texts(IterableDataset):
        def __iter__(self):
            encode, packed, info = tokenizer(folder), Packed(), get_worker_info()
            with open(folder / "texts.jsonl", "rb") as lines:
                mine = itertools.islice(lines, info.id, None, info.num_workers) if info else lines
                rows = (packed.rows(encode(some)) for some in chunks(mine, TEXTS))
                yield from map(torch.from_numpy, batches_of(rows))

    return DataLoader(Texts(), batch_size=None, num_workers=workers), len


class Pictures:
    def __init__(self, folder):
        self.files = sorted((folder / "images").glob("*/*.jpg"))

    def __len__(self):
        return len(self.files)

    def __getitem__(self, number):
        from PIL import Image

        file = self.files[number]
        with Image.open(file) as image:
            image.draft("RGB", (SIZE, SIZE))
            image = image.convert("RGB").resize((SIZE, SIZE), Image.Resampling.BILINEAR)
            pixels = np.asarray(image)
        if np.random.random() < 0.5:
            pixels = pixels[:, ::-1]
        return np.ascontiguousarray(pixels), int(file.parent.name[5:])


def torch_jpeg(folder, workers):
    from torch.utils.data import DataLoader

    loader = DataLoader(Pictures(folder), batch_size=IMAGES, shuffle=True, num_workers=workers)
    return loader, lambda batch: len(batch[1])


# Grain


def grain_npy(folder):
    import grain.python as grain

    x, y = np.load(folder / "x.npy", mmap_mode="r"), np.load(folder / "y.npy", mmap_mode="r")

    class Rows:
        def __len__(self):
            return len(y)

        def __getitem__(self, number):
            return x[number], y[number]

    data = grain.MapDataset.source(Rows()).shuffle(seed=1).batch(BATCH)
    return data.to_iter_dataset(grain.ReadOptions(num_threads=WORKERS, prefetch_buffer_size=16)), lambda batch: len(batch[1])


def grain_jpeg(folder):
    import grain.python as grain

    data = grain.MapDataset.source(Pictures(folder)).shuffle(seed=1).batch(IMAGES)
    options = grain.ReadOptions(num_threads=WORKERS, prefetch_buffer_size=4)
    return data.to_iter_dataset(options), lambda batch: len(batch[1])


def grain_tokens(folder):
    import grain.python as grain
    from grain.experimental import ConcatThenSplitIterDataset

    encode = tokenizer(folder)

    # Lines are found first, as a source that is read by number has to.
    class Lines:
        def __init__(self):
            self.ends = [0]
            with open(folder / "texts.jsonl", "rb") as lines:
                for some in chunks(lines, TEXTS):
                    self.ends.append(self.ends[-1] + sum(map(len, some)))
            self.file = open(folder / "texts.jsonl", "rb")

        def __len__(self):
            return len(self.ends) - 1

        def __getitem__(self, number):
            first, end = self.ends[number : number + 2]
            return os.pread(self.file.fileno(), end - first, first).splitlines()

    data = grain.MapDataset.source(Lines()).map(lambda lines: {"tokens": encode(lines)})
    data = data.to_iter_dataset(grain.ReadOptions(num_threads=WORKERS, prefetch_buffer_size=4))
    data = ConcatThenSplitIterDataset(data, length_struct={"tokens": LENGTH})
    return data.batch(ROWS), lambda batch: len(batch["tokens"])


PEERS = {
    "tf.data": {"npy": tf_npy, "csv": tf_csv, "tfrecord": tf_tfrecord, "jpeg": tf_jpeg, "tokens": tf_tokens},
    "tf.data, mapped": {"npy": tf_npy_mapped},
    "DataLoader, 0 workers": {
        "npy": lambda folder: torch_npy(folder, 0),
        "csv": lambda folder: torch_csv(folder, 0),
        "parquet": lambda folder: torch_parquet(folder, 0),
        "jpeg": lambda folder: torch_jpeg(folder, 0),
        "tokens": lambda folder: torch_tokens(folder, 0),
    },
    "DataLoader, 2 workers": {
        "npy": lambda folder: torch_npy(folder, WORKERS),
        "jpeg": lambda folder: torch_jpeg(folder, WORKERS),
        "tokens": lambda folder: torch_tokens(folder, WORKERS),
    },
    "grain": {"npy": grain_npy, "jpeg": grain_jpeg, "tokens": grain_tokens},
}


def main():
    if sys.argv[1:] == ["--list"]:
        print(json.dumps({name: list(tasks) for name, tasks in PEERS.items()}))
        return
    name, task, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    make = PEERS[name][task]
    # Within one process the tokenizer uses both cores itself; beside others it is told not to.
    os.environ["TOKENIZERS_PARALLELISM"] = "false" if "workers" in name and not name.endswith("0 workers") else "true"
    # Imports and thread pools are not the pipeline's.
    if name.startswith("tf"):
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(2)
        tf.config.threading.set_inter_op_parallelism_threads(2)
        list(tf.data.Dataset.range(10).batch(2))
    elif name.startswith("DataLoader"):
        import torch
        from torch.utils.data import DataLoader

        torch.set_num_threads(2)
        list(DataLoader([1, 2, 3]))
    else:
        import grain.python as grain

        list(grain.MapDataset.range(4).batch(2))
    workers = Workers() if "2 workers" in name else None
    before = resident()
    start = time.perf_counter()
    data, count = make(folder)
    rows = sum(count(batch) for batch in data)
    seconds = time.perf_counter() - start
    print(json.dumps({"rows": int(rows), "seconds": seconds, "peak_bytes": peak() - before + (workers.end() if workers else 0)}))


if __name__ == "__main__":
    main()
