"""Cuts a profile down to what the reader looks at: memory events, steps, and the scopes open around them.

    python3 shrink_xplane.py IN.xplane.pb OUT.xplane.pb.gz
"""

import gzip
import sys

from wire import fields, put

MEMORY = (b"MemoryAllocation", b"MemoryDeallocation")


def named(entry):
    entry = {field: value for field, _, value in fields(entry)}
    message = {field: value for field, _, value in fields(entry[2])}
    return entry.get(1, 0), message.get(2, b"")


def numbers(event):
    return {field: value for field, kind, value in fields(event) if kind == 0}


def shrink_line(line, names, steps):
    begin = [value for field, _, value in fields(line) if field == 3]
    events = [(numbers(value), value) for field, _, value in fields(line) if field == 4]
    wanted = []
    for head, event in events:
        stats = [next(fields(value))[2] for field, _, value in fields(event) if field == 4]
        if names.get(head.get(1, 0)) in MEMORY or any(stat in steps for stat in stats):
            wanted.append(head.get(2, 0))
    if not wanted:
        return None
    import bisect

    wanted.sort()
    out = b"".join(put(field, kind, value) for field, kind, value in fields(line) if field != 4)
    used = set()
    for head, event in events:
        start, end = head.get(2, 0), head.get(2, 0) + head.get(3, 0)
        at = bisect.bisect_left(wanted, start)
        if at < len(wanted) and wanted[at] <= end:
            if names.get(head.get(1, 0)) not in MEMORY:
                # A scope needs its name and its time only, unless it is a step.
                kept = b""
                for field, kind, value in fields(event):
                    if field != 4 or next(fields(value))[2] in steps:
                        kept += put(field, kind, value)
                event = kept
            used.add(head.get(1, 0))
            out += put(4, 2, event)
    return out, used


def shrink(data):
    out = b""
    for field, kind, plane in fields(data):
        if field != 1:
            out += put(field, kind, plane)
            continue
        parts = list(fields(plane))
        names = dict(named(value) for field, _, value in parts if field == 4)
        stats = dict(named(value) for field, _, value in parts if field == 5)
        steps = {number for number, name in stats.items() if name == b"step_num"}
        if not any(name in MEMORY for name in names.values()):
            continue
        used, kept = set(), b""
        for field, kind, value in parts:
            if field == 3:
                line = shrink_line(value, names, steps)
                if line:
                    kept += put(3, 2, line[0])
                    used |= line[1]
            elif field == 4 and named(value)[0] in used:
                number, name = named(value)
                kept += put(4, 2, put(1, 0, number) + put(2, 2, put(2, 2, name)))
            elif field not in (3, 4, 6):
                kept += put(field, kind, value)
        out += put(1, 2, kept)
    return out


if __name__ == "__main__":
    with open(sys.argv[1], "rb") as file:
        small = shrink(file.read())
    with open(sys.argv[2], "wb") as file:
        file.write(gzip.compress(small, 9, mtime=0))
