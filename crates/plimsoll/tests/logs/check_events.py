"""Reads the event files of a run with TensorBoard's own reader and holds them to what the run reports.

Usage: python check_events.py DIR [DIR ...], with each DIR what `plimsoll train --out DIR` has left behind.
requirements.txt beside this says which TensorBoard.
"""

import json
import pathlib
import struct
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def f32(number):
    """The number as TensorBoard keeps it."""
    return struct.unpack("f", struct.pack("f", number))[0]


def check(folder):
    report = json.loads((folder / "run.json").read_text())
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "histograms": 0})
    events.Reload()
    tags = events.Tags()
    scalars = {tag: events.Scalars(tag) for tag in tags["scalars"]}

    losses = scalars["loss"]
    steps = [event.step for event in losses]
    assert steps == sorted(set(steps)), f"{folder}: steps do not rise: {steps}"
    last = lines[-1]["step"]
    assert steps[-1] == last, f"{folder}: the last step is {last}, logged is {steps[-1]}"
    # A report of a run that went on has the losses of its last part, or of all of it.
    known = report["losses"]
    first = last - len(known)
    for event in losses:
        if event.step > first:
            expected = f32(known[event.step - 1 - first])
            assert event.value == expected, f"{folder}: step {event.step} is {event.value}, not {expected}"
    for line in lines:
        if line["event"] == "step":
            for event in losses:
                if event.step == line["step"]:
                    assert event.value == f32(line["loss"]), f"{folder}: step {event.step}"

    assert scalars["memory/arena"][-1].value == f32(report["arena_bytes"])
    for category, size in report["ledger"].items():
        if size > 0:
            assert scalars[f"memory/at_peak/{category}"][-1].value == f32(size), category
    assert scalars["speed/steps_per_second"][-1].value > 0
    for name, value in report["final_metrics"].items():
        assert scalars[f"final/{name}"][-1].value == f32(value), name
    for tag in tags["histograms"]:
        for event in events.Histograms(tag):
            of = event.histogram_value
            assert sum(of.bucket) == of.num > 0 and of.min <= of.max, tag
    print(f"ok: {folder}: {len(losses)} losses, {len(scalars)} scalars, {len(tags['histograms'])} histograms")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for folder in sys.argv[1:]:
        check(pathlib.Path(folder))
