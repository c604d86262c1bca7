"""Makes a recorded snapshot small enough to keep: drops call stacks, and requests to free, which
completed frees follow.

Usage: shrink_snapshot.py IN.pickle OUT.pickle.gz
"""
import gzip
import pickle
import sys

with open(sys.argv[1], "rb") as file:
    snapshot = pickle.load(file)
KEPT = ("action", "addr", "size", "stream", "time_us", "device_free")
for trace in snapshot["device_traces"]:
    entries = (entry for entry in trace if entry["action"] != "free_requested")
    trace[:] = [{key: entry[key] for key in KEPT if key in entry} for entry in entries]
for segment in snapshot["segments"]:
    segment["frames"] = []
    for block in segment["blocks"]:
        block["frames"] = []
with gzip.GzipFile(sys.argv[2], "wb", mtime=0) as file:
    file.write(pickle.dumps(snapshot, protocol=4))
