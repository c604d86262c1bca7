"""Writes tests/data: small arrays as NumPy, gzip and safetensors save them, for the tests of their readers.

Run with: pip install numpy==2.* safetensors && python export_arrays.py
"""

import gzip
import pathlib
import struct

import numpy as np
from safetensors.numpy import save_file

here = pathlib.Path(__file__).parent.parent / "tests" / "data"
here.mkdir(exist_ok=True)

# Five samples of 2 x 3. In halves, so that every type of float holds them.
floats = np.arange(30).reshape(5, 2, 3) / 2 - 3
wholes = np.arange(30).reshape(5, 2, 3) - 12
labels = np.array([0, 1, 2, 1, 0])

for name in ["<f2", "<f4", "<f8", ">f2", ">f4", ">f8"]:
    np.save(here / f"{name.replace('<', 'little-').replace('>', 'big-')}.npy", floats.astype(name))
for name in ["|i1", "<i2", "<i4", "<i8", ">i2", ">i4", ">i8"]:
    plain = name.replace("<", "little-").replace(">", "big-").replace("|", "")
    np.save(here / f"{plain}.npy", wholes.astype(name))
np.save(here / "u1.npy", (wholes + 12).astype("u1"))
np.save(here / "b1.npy", wholes % 2 == 0)
np.save(here / "labels.npy", labels)
np.save(here / "targets.npy", labels / 4)
np.save(here / "fortran.npy", np.asfortranarray(floats.astype("f4")))
np.save(here / "unsigned.npy", wholes.astype("u2"))
np.save(here / "records.npy", np.zeros(5, dtype=[("a", "f4"), ("b", "i4")]))
for version in [(2, 0), (3, 0)]:
    with open(here / f"version-{version[0]}.npy", "wb") as file:
        np.lib.format.write_array(file, floats.astype("f4"), version=version)

np.savez(here / "stored.npz", x=floats.astype("f4"), y=labels)
np.savez_compressed(here / "compressed.npz", x=floats.astype("f4"), y=labels)
save_file({"x": floats.astype("f4"), "half": floats.astype("f2"), "y": labels}, here / "tensors.safetensors")


def idx(array, kind):
    extents = struct.pack(f">{array.ndim}I", *array.shape)
    return bytes([0, 0, kind, array.ndim]) + extents + array.tobytes()


images = idx((wholes + 12).astype("u1"), 0x08)
(here / "images-idx3-ubyte").write_bytes(images)
(here / "labels-idx1-ubyte").write_bytes(idx(labels.astype("u1"), 0x08))
(here / "images-idx3-ubyte.gz").write_bytes(gzip.compress(images, mtime=0))
(here / "labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(labels.astype("u1"), 0x08), mtime=0))
(here / "floats-idx3").write_bytes(idx(floats.astype(">f4"), 0x0D))
