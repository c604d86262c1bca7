"""Reads the last checkpoint of a run with Python's safetensors and holds it to the run's report and weights.

Usage: python check_checkpoint.py DIR, with DIR what `plimsoll train --out DIR` has left behind.
"""

import hashlib
import json
import pathlib
import sys

import numpy
from safetensors.numpy import load_file

run = pathlib.Path(sys.argv[1])
report = json.loads((run / "run.json").read_text())
checkpoint = max((run / "checkpoints").iterdir())
sums = dict(reversed(line.split("  ")) for line in (checkpoint / "SHA256SUMS").read_text().splitlines())
assert set(sums) == {"states.safetensors", "history.safetensors", "manifest.json"}, sums
for name, expected in sums.items():
    assert hashlib.sha256((checkpoint / name).read_bytes()).hexdigest() == expected, name

manifest = json.loads((checkpoint / "manifest.json").read_text())
assert manifest["step"] == len(report["losses"]) and manifest["finished"], manifest
history = load_file(checkpoint / "history.safetensors")
assert numpy.array_equal(history["loss"], numpy.array(report["losses"], dtype=numpy.float32))
assert history["validation/step"].tolist() == [of["step"] for of in report["validations"]]
for name in report["validations"][0]["metrics"]:
    told = [of["metrics"][name] for of in report["validations"]]
    assert numpy.allclose(history[f"validation/metric/{name}"], told, rtol=1e-15), name

states, weights = load_file(checkpoint / "states.safetensors"), load_file(run / "weights.safetensors")
assert weights and set(weights) < set(states)
for name, weight in weights.items():
    assert numpy.array_equal(states[name], weight), name
print(f"{checkpoint.name}: {len(states)} states, {len(history['loss'])} losses, as the run reports them")
