"""Figures of the memory events of a profile, computed without the reader that is tested against them.

    python3 xplane_figures.py PROFILE.xplane.pb[.gz]…

For each pool: events, bytes in use at the end and at the peak as the profile states them, and the most bytes live
at once as they were asked for.
"""

import gzip
import sys

from shrink_xplane import named
from wire import fields


def events(data):
    for field, _, plane in fields(data):
        if field != 1:
            continue
        parts = list(fields(plane))
        names = dict(named(value) for field, _, value in parts if field == 4)
        stats = dict(named(value) for field, _, value in parts if field == 5)
        for line in (value for field, _, value in parts if field == 3):
            begin = sum(value for field, _, value in fields(line) if field == 3) * 1000
            for event in (value for field, _, value in fields(line) if field == 4):
                numbers = {field: value for field, kind, value in fields(event) if kind == 0}
                name = names.get(numbers.get(1, 0), b"").decode()
                if not name.startswith("Memory"):
                    continue
                told = {}
                for stat in (value for field, _, value in fields(event) if field == 4):
                    stat = {field: value for field, _, value in fields(stat)}
                    value = stats.get(stat[7]) if 7 in stat else stat.get(4, stat.get(3, stat.get(2)))
                    told[stats[stat[1]].decode()] = value
                yield begin + numbers.get(2, 0), name, told


for path in sys.argv[1:]:
    with open(path, "rb") as file:
        data = file.read()
    found = sorted(events(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data), key=lambda event: event[0])
    for pool in sorted({told["allocator_name"] for _, _, told in found}):
        here = [(name, told) for _, name, told in found if told["allocator_name"] == pool]
        live = peak = 0
        for name, told in here:
            live += told["requested_bytes"] if name == "MemoryAllocation" else -told["requested_bytes"]
            peak = max(peak, live)
        last = here[-1][1]
        print(
            path,
            pool.decode(),
            "events", len(here),
            "in use", last["bytes_allocated"],
            "peak", max(told["peak_bytes_in_use"] for _, told in here),
            "asked at the peak", peak,
            "asked at the end", live,
        )
