"""One peer on one task: reads one epoch, prints rows a second and the peak of its memory over what imports take.

usage: peer.py PEER TASK FOLDER | --list
"""

import json
import resource
import sys
import time
from pathlib import Path

import numpy as np

BATCH = 256
IMAGES = 32
SIZE = 224
WORKERS = 2


def resident():
    with open("/proc/self/status") as status:
        fields = dict(line.split(":", 1) for line in status)
    return int(fields["VmRSS"].split()[0]) * 1024


def peak():
    """Of this process and of its workers, each counted by what it takes alone."""
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return own * 1024


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


PEERS = {
    "tf.data": {"npy": tf_npy, "csv": tf_csv, "tfrecord": tf_tfrecord, "jpeg": tf_jpeg},
    "tf.data, mapped": {"npy": tf_npy_mapped},
    "DataLoader, 0 workers": {
        "npy": lambda folder: torch_npy(folder, 0),
        "csv": lambda folder: torch_csv(folder, 0),
        "parquet": lambda folder: torch_parquet(folder, 0),
        "jpeg": lambda folder: torch_jpeg(folder, 0),
    },
    "DataLoader, 2 workers": {
        "npy": lambda folder: torch_npy(folder, WORKERS),
        "jpeg": lambda folder: torch_jpeg(folder, WORKERS),
    },
    "grain": {"npy": grain_npy, "jpeg": grain_jpeg},
}


def main():
    if sys.argv[1:] == ["--list"]:
        print(json.dumps({name: list(tasks) for name, tasks in PEERS.items()}))
        return
    name, task, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    make = PEERS[name][task]
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
    before = resident()
    start = time.perf_counter()
    data, count = make(folder)
    rows = sum(count(batch) for batch in data)
    seconds = time.perf_counter() - start
    print(json.dumps({"rows": int(rows), "seconds": seconds, "peak_bytes": peak() - before}))


if __name__ == "__main__":
    main()
