"""Prints what a reader must find in PyTorch's recordings, computed without Plimsoll, by Python's own readers.

Usage: torch_oracle.py FILE...    (memory snapshots, or Chrome traces of the profiler; gzip or not)

Only for files that are trusted: Python's pickle runs what a file asks it to.
"""

import collections
import gzip
import json
import pickle
import sys


def load(path):
    with open(path, "rb") as file:
        data = file.read()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    return json.loads(data) if data.lstrip()[:1] in (b"{", b"[") else pickle.loads(data)


def peak(start, changes):
    live = most = start
    for change in changes:
        live += change
        most = max(most, live)
    return most


def snapshot(data):
    segments = data["segments"] if isinstance(data, dict) else data
    for device, trace in enumerate(data["device_traces"]):
        own = [s for s in segments if s["device"] == device]
        blocks = [b for s in own for b in s["blocks"]]
        if not own and not trace:
            continue
        used = [b for b in blocks if b["state"] != "inactive"]
        print(f"device {device}")
        print("  segments", len(own), "blocks", len(blocks))
        print("  reserved", sum(s["total_size"] for s in own))
        print("  allocated", sum(s["allocated_size"] for s in own))
        print("  active", sum(s["active_size"] for s in own), "by blocks", sum(b["size"] for b in used))
        print("  requested", sum(b["requested_size"] for b in used))
        print("  largest free", max((b["size"] for b in blocks if b["state"] == "inactive"), default=0))
        print("  actions", sorted(collections.Counter(e["action"] for e in trace).items()))
        # Walked backwards from the blocks at the end: what is left was there before the first event.
        live = {b["address"]: b["requested_size"] for b in used}
        reserved = sum(s["total_size"] for s in own)
        for event in reversed(trace):
            if event["action"] == "free_completed":
                assert event["addr"] not in live
                live[event["addr"]] = event["size"]
            elif event["action"] == "alloc":
                assert live.pop(event["addr"]) == event["size"]
            elif event["action"] in ("segment_alloc", "segment_map"):
                reserved -= event["size"]
            elif event["action"] in ("segment_free", "segment_unmap"):
                reserved += event["size"]
        initial = sum(live.values())
        print("  before: live", len(live), "of", initial, "bytes; reserved", reserved)
        signs = {"alloc": 1, "free_completed": -1}
        changes = (signs.get(e["action"], 0) * e.get("size", 0) for e in trace)
        print("  peak live", peak(initial, changes))
        marks = [a for a in data.get("external_annotations", []) if a["stage"] == "START"]
        print("  marks", sorted(collections.Counter(a["name"] for a in marks if a["device"] == device).items()))
        by_stack = collections.Counter()
        for block in used:
            by_stack[tuple((f["filename"], f["line"], f["name"]) for f in block.get("frames", []))] += block["size"]
        (stack, size), = by_stack.most_common(1)
        print("  most live at", stack[:3], "in all", len(stack), "frames:", size, "bytes; stacks", len(by_stack))
        for event in trace:
            if event["action"] == "oom":
                print("  oom", event["size"], "device free", event["device_free"])


def chrome(data):
    events = data if isinstance(data, list) else data["traceEvents"]
    memory = [e for e in events if e.get("name") == "[memory]"]
    memory.sort(key=lambda e: e["ts"])
    by_device = collections.defaultdict(list)
    for event in memory:
        args = event["args"]
        by_device[args["Device Type"], args["Device Id"]].append((args["Addr"], args["Bytes"], event))
    spans = [e for e in events if e.get("ph") == "X" and e.get("cat") in ("cpu_op", "python_function")]
    for device, changes in by_device.items():
        print("device type and id", device)
        held, initial = {}, 0
        for address, size, _ in changes:
            if size > 0:
                held[address] = size
            elif held.pop(address, None) is None:
                initial -= size
        print("  allocations", sum(size > 0 for _, size, _ in changes), "frees", sum(s < 0 for _, s, _ in changes))
        print("  before", initial, "after", sum(held.values()))
        print("  peak live", peak(initial, (size for _, size, _ in changes)))
        by_op = collections.Counter()
        for _, size, event in changes:
            if size > 0:
                around = [
                    s
                    for s in spans
                    if s["tid"] == event["tid"] and s["ts"] <= event["ts"] <= s["ts"] + s["dur"]
                ]
                around.sort(key=lambda s: (s["ts"], -s["dur"]))
                by_op[around[-1]["name"] if around else None] += size
        print("  bytes by innermost span", by_op.most_common(4))
    marks = collections.Counter(e["name"] for e in events if e.get("cat") == "user_annotation")
    print("marks", sorted(marks.items()))


for name in sys.argv[1:]:
    print("#", name.rsplit("/", 1)[-1])
    contents = load(name)
    is_chrome = isinstance(contents, dict) and "traceEvents" in contents
    (chrome if is_chrome else snapshot)(contents)
