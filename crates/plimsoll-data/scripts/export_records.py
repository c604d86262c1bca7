"""Writes tests/data/records.*: small files of records as TensorFlow, Python's json and zstd write them, for the tests of
their readers.

Run with: pip install tensorflow==2.* zstandard && python export_records.py
"""

import gzip
import json
import pathlib
import struct

import tensorflow as tf
import zstandard

here = pathlib.Path(__file__).parent.parent / "tests" / "data"
here.mkdir(exist_ok=True)

# Sample n: floats n/2, n/2 + 0.1, ... as 2 x 3; the label n % 3; n tokens; a text.
texts = ["", "plain", 'quotes " and \\ and /', "lines\nand\ttabs\u0001", "Grüße, 世界, 🌍"]


def floats(n):
    return [n / 2 + k / 10 for k in range(6)]


def example(n):
    feature = {
        "floats": tf.train.Feature(float_list=tf.train.FloatList(value=floats(n))),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[n % 3])),
        "tokens": tf.train.Feature(int64_list=tf.train.Int64List(value=[(-1) ** k * 10 ** (3 * k) for k in range(n)])),
        "text": tf.train.Feature(bytes_list=tf.train.BytesList(value=[texts[n].encode()])),
        "unused": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"a", b"b"])),
        "empty": tf.train.Feature(),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString(deterministic=True)


for name, options in [("records.tfrecord", None), ("records.tfrecord.gz", "GZIP")]:
    with tf.io.TFRecordWriter(str(here / name), options) as writer:
        for n in range(5):
            writer.write(example(n))


# The same lists, each number with a tag of its own, as writers of before packing and some of other languages leave them.
def field(number, wire, value):
    return bytes([number << 3 | wire]) + value


def message(number, value):
    length, varint = len(value), b""
    while length >= 128:
        varint, length = varint + bytes([length & 127 | 128]), length >> 7
    return field(number, 2, varint + bytes([length]) + value)


def entry(name, feature):
    return message(1, message(1, name.encode()) + message(2, feature))


with tf.io.TFRecordWriter(str(here / "unpacked.tfrecord")) as writer:
    for n in range(5):
        singles = b"".join(field(1, 5, struct.pack("<f", value)) for value in floats(n))
        label = field(1, 0, bytes([n % 3]))
        unpacked = message(1, entry("floats", message(2, singles)) + entry("label", message(3, label)))
        read = tf.train.Example.FromString(unpacked).features.feature
        expected = tf.train.Example.FromString(example(n)).features.feature
        assert read["floats"] == expected["floats"] and read["label"] == expected["label"]
        writer.write(unpacked)

lines = []
for n in range(5):
    record = {
        "floats": [floats(n)[:3], floats(n)[3:]],
        "label": n % 3,
        "tokens": [(-1) ** k * 10 ** (3 * k) for k in range(n)],
        "text": texts[n],
        "unused": {"a": [None, True, False, {}], "b": [[]], "label": 7, "c": float("nan")},
        "rows": [[n, n + 1]] * n,
        "price": 0.1 + n,
        "is_odd": n % 2 == 1,
        "whole": n * 1.0,
    }
    lines.append(json.dumps(record, ensure_ascii=n % 2 == 0, indent=None))
text = ("\n".join(lines[:3]) + "\n\n" + "\r\n".join(lines[3:])).encode()
(here / "records.jsonl").write_bytes(text)
(here / "records.jsonl.gz").write_bytes(gzip.compress(text, mtime=0))

# Two frames with checksums, and between them one that readers are to skip.
packer = zstandard.ZstdCompressor(write_checksum=True)
frames = packer.compress(text[:700]) + struct.pack("<II", 0x184D2A53, 5) + b"skip!" + packer.compress(text[700:])
(here / "records.jsonl.zst").write_bytes(frames)
