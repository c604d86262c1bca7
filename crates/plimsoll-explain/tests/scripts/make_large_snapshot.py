"""Writes a memory snapshot as PyTorch would, of as many events as asked for, to measure reading with.

Usage: make_large_snapshot.py OUT EVENTS [FRAMES] [STACKS]

A training loop's pattern: steps of allocations that are freed in reverse, a few kept. Frames are shared between
stacks and stacks are lists of their own, as in real snapshots. Events are pickled as they are made, so that
this needs little memory itself; what is written is what Python's pickler would write, memo and frames included.
"""

import pickle
import random
import struct
import sys


class Writer:
    """A pickler of protocol 4 whose lists may be written item by item."""

    def __init__(self, file):
        self.file, self.buffer, self.places, self.known = file, bytearray(), 0, {}
        file.write(pickle.PROTO + b"\x04")

    def flush(self, least=65536):
        if len(self.buffer) >= least:
            self.file.write(pickle.FRAME + struct.pack("<Q", len(self.buffer)))
            self.file.write(self.buffer)
            self.buffer.clear()

    def memoize(self, key=None):
        self.buffer += pickle.MEMOIZE
        if key is not None:
            self.known[key] = self.places
        self.places += 1

    def get(self, place):
        self.buffer += b"h" + bytes([place]) if place < 256 else b"j" + struct.pack("<I", place)

    def text(self, text):
        if text in self.known:
            return self.get(self.known[text])
        data = text.encode()
        self.buffer += b"\x8c" + bytes([len(data)]) + data
        self.memoize(text)

    def number(self, number):
        if 0 <= number < 256:
            self.buffer += b"K" + bytes([number])
        elif 0 <= number < 65536:
            self.buffer += b"M" + struct.pack("<H", number)
        elif -(2**31) <= number < 2**31:
            self.buffer += b"J" + struct.pack("<i", number)
        else:
            data = number.to_bytes(number.bit_length() // 8 + 1, "little", signed=True)
            self.buffer += b"\x8a" + bytes([len(data)]) + data

    def value(self, value):
        if isinstance(value, bool):
            self.buffer += b"\x88" if value else b"\x89"
        elif isinstance(value, int):
            self.number(value)
        elif isinstance(value, str):
            self.text(value)
        else:
            value(self)

    def dict(self, key=None, **entries):
        self.buffer += b"}"
        self.memoize(key)
        self.buffer += b"("
        for name, value in entries.items():
            self.text(name)
            self.value(value)
        self.buffer += b"u"

    def list(self, items):
        self.buffer += b"]"
        self.memoize()
        batch = 0
        for item in items:
            if batch == 0:
                self.buffer += b"("
            item(self)
            batch += 1
            if batch == 1000:
                self.buffer += b"e"
                self.flush()
                batch = 0
        if batch:
            self.buffer += b"e"


def main():
    out, count = sys.argv[1], int(sys.argv[2])
    depth = int(sys.argv[3]) if len(sys.argv) > 3 else 10
    stacks = int(sys.argv[4]) if len(sys.argv) > 4 else 200
    rng = random.Random(0)

    def frame(stack, level):
        key = ("frame", stack % 40 if level else stack, level)

        def write(w):
            if key in w.known:
                return w.get(w.known[key])
            w.dict(key, name=f"function_{key[1]}_{level}", filename=f"site-packages/module_{level}.py", line=key[1])

        return write

    written = {}

    def frames(stack):
        def write(w):
            # Once all frames of a stack are known, its list is the same bytes each time.
            if stack in written:
                w.buffer += b"]\x94" + written[stack]
                w.places += 1
                return
            known = all(("frame", stack % 40 if level else stack, level) in w.known for level in range(depth))
            start = len(w.buffer)
            w.list(frame(stack, level) for level in range(depth))
            if known and len(w.buffer) > start:
                written[stack] = bytes(w.buffer[start + 2 :])

        return write

    base, time, live, free = 0x7F0000000000, 1_790_000_000_000_000, [], []

    def event(action, address, size, stack):
        nonlocal time
        time += 3
        now = time
        return lambda w: w.dict(
            action=action, addr=address, size=size, stream=0, time_us=now,
            compile_context="N/A", user_metadata="", frames=stack,
        )

    def events():
        made, top = 0, base
        while made < count:
            step = []
            for _ in range(300):
                size, stack = rng.randrange(1, 4096) * 512, rng.randrange(stacks)
                if not free:
                    yield event("segment_alloc", top, 2**21, frames(stack))
                    free.append(top)
                    top += 2**21
                    made += 1
                address = free.pop()
                yield event("alloc", address, size, frames(stack))
                step.append((address, size, stack))
                made += 1
            if len(live) < 5000:
                live.append(step.pop(150))
            for address, size, stack in reversed(step):
                shared = {}

                def once(w, stack=stack, shared=shared):
                    if "place" in shared:
                        return w.get(shared["place"])
                    shared["place"] = w.places
                    frames(stack)(w)

                yield event("free_requested", address, size, once)
                yield event("free_completed", address, size, once)
                free.append(address)
                made += 2

    def segments():
        for address, size, stack in sorted(live + [(address, 0, 0) for address in free]):
            def block(address, size, state, stack):
                return lambda w: w.dict(
                    address=address, size=size, requested_size=size, state=state, frames=frames(stack)
                )

            blocks = [block(address, size, "active_allocated", stack)] if size else []
            blocks.append(block(address + size, 2**21 - size, "inactive", 0))
            yield lambda w, address=address, size=size, blocks=blocks: w.dict(
                device=0, address=address, total_size=2**21, allocated_size=size, active_size=size, stream=0,
                segment_type="large", is_expandable=False, blocks=lambda w: w.list(blocks),
            )

    with open(out, "wb") as file:
        writer = Writer(file)
        # The events come first, because the segments at the end follow from them; readers must not care.
        writer.dict(
            device_traces=lambda w: w.list([lambda w: w.list(events())]),
            segments=lambda w: w.list(segments()),
        )
        writer.buffer += b"."
        writer.flush(1)


main()
