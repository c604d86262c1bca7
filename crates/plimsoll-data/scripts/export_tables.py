"""Writes tests/data/tables: small tables as pyarrow saves them, for the tests of their readers.

Run with: pip install pyarrow==26.* && python export_tables.py
"""

import pathlib

import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

here = pathlib.Path(__file__).parent.parent / "tests" / "data" / "tables"
here.mkdir(exist_ok=True)

rows = range(50)
numbers = {
    "single": pa.array([row / 2 - 3 for row in rows], pa.float32()),
    "text": pa.array(["row " + "ä" * (row % 5) for row in rows]),
    "list": pa.array([[row + at / 4 for at in range(row % 4)] for row in rows], pa.list_(pa.float32())),
}
everything = pa.table(
    numbers
    | {
        "double": pa.array([row / 3 for row in rows], pa.float64()),
        "half": pa.array([row / 4 for row in rows], pa.float16()),
        "tiny": pa.array([row - 25 for row in rows], pa.int8()),
        "short": pa.array([row * -300 for row in rows], pa.int16()),
        "count": pa.array([row * 1000 for row in rows], pa.uint16()),
        "word": pa.array([row * -70000 for row in rows], pa.int32()),
        "unsigned": pa.array([4_000_000_000 + row for row in rows], pa.uint32()),
        "long": pa.array([row * 1_000_000_007 for row in rows], pa.int64()),
        "byte": pa.array([row * 5 for row in rows], pa.uint8()),
        "flag": pa.array([row % 3 == 0 for row in rows]),
        "kind": pa.array([["a", "bb", "ccc"][row % 3] for row in rows]).dictionary_encode(),
        "raw": pa.array([bytes([row] * (row % 4)) for row in rows], pa.binary()),
        "code": pa.array([bytes([row, row + 1]) for row in rows], pa.binary(2)),
        "triple": pa.array([[row, row + 1, row + 2] for row in rows], pa.list_(pa.int32(), 3)),
        "pair": pa.array([[row, -row] for row in rows], pa.list_(pa.int64())),
        "when": pa.array(list(rows), pa.timestamp("s")),
    }
)
numbers = pa.table(numbers)

pq.write_table(everything, here / "everything.parquet", row_group_size=20, data_page_size=64)
for packing in ["none", "gzip", "zstd", "lz4"]:
    pq.write_table(numbers, here / f"{packing}.parquet", row_group_size=20, compression=packing)
pq.write_table(
    numbers,
    here / "second-pages.parquet",
    row_group_size=30,
    data_page_version="2.0",
    data_page_size=64,
    use_dictionary=False,
    write_page_index=True,
)
with ipc.new_file(here / "everything.arrow", everything.schema) as file:
    file.write_table(everything, max_chunksize=20)
with ipc.new_stream(here / "stream.arrow", numbers.schema) as file:
    file.write_table(numbers, max_chunksize=7)
for packing in ["lz4", "zstd"]:
    options = ipc.IpcWriteOptions(compression=packing)
    with ipc.new_file(here / f"{packing}.arrow", numbers.schema, options=options) as file:
        file.write_table(numbers, max_chunksize=20)

# More than 64 MiB of values that are nearly all the same.
wide = pa.table(
    {
        "same": pa.FixedSizeListArray.from_arrays(
            pa.array([row % 7 for row in range(17_000) for _ in range(1024)], pa.float32()), 1024
        ),
        "class": pa.array([row % 3 for row in range(17_000)], pa.int32()),
    }
)
pq.write_table(wide, here / "wide.parquet", compression="zstd", compression_level=19)

nulls = pa.table(
    {
        "number": pa.array([1, None, 3, 4], pa.int32()),
        "text": pa.array(["a", "b", None, "d"]),
        "list": pa.array([[1.0, None], [], None, [2.0]], pa.list_(pa.float64())),
        "pair": pa.array([[1, 2], [3, 4], [5, None], None], pa.list_(pa.uint8(), 2)),
        "kind": pa.array(["x", None, "y", "x"]).dictionary_encode(),
    }
)
pq.write_table(nulls, here / "nulls.parquet")
with ipc.new_file(here / "nulls.arrow", nulls.schema) as file:
    file.write_table(nulls)
