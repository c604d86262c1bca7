"""PyTorch: the history of its allocator, and the moment at which a request is refused.

Nothing of PyTorch is imported from here, and nothing of CUDA is touched before the program does: recording begins when
the program first uses a GPU.
"""

import sys
import time
from typing import Callable, Optional

# The last so many requests and releases are kept, with the Python stack of each request: tens of steps of a large model.
HISTORY_ENTRIES = 100_000

# What a program that runs out and goes on (to find a batch that fits, say) may lose to writing snapshots.
SHARE_OF_TIME = 0.1


class Recorder:
    """Records what PyTorch's CUDA allocator is asked for, and writes a snapshot when it refuses."""

    def __init__(self, place: Callable[[], Optional[str]]) -> None:
        """`place` is asked where a snapshot may be written, when there is one to write."""
        self._place = place
        self._writing_seconds = 0.0
        self._first_refusal: Optional[float] = None
        self.recording = False
        #: The snapshot of the last refusal, if it was written.
        self.snapshot: Optional[str] = None
        #: Why there is no history, if there is none.
        self.trouble: Optional[str] = None

    def attach(self, torch) -> None:
        """Begins to record once the program uses a GPU. Called when `torch` was imported."""
        torch.cuda._lazy_call(lambda: self._begin(torch))

    def stop(self) -> None:
        """Ends recording. The observer stays, as PyTorch cannot detach one, and does nothing any more."""
        if self.recording:
            self.recording = False
            sys.modules["torch"].cuda.memory._record_memory_history(None)

    def _begin(self, torch) -> None:
        # This runs inside of torch.cuda's initialisation, which it must not break.
        try:
            record = torch.cuda.memory._record_memory_history
            try:
                record(enabled="all", context="alloc", stacks="python", max_entries=HISTORY_ENTRIES)
            except TypeError:
                # PyTorch 2.0 has other names for the same.
                record(True, trace_alloc_max_entries=HISTORY_ENTRIES, trace_alloc_record_context=True)
            self.recording = True
            torch._C._cuda_attach_out_of_memory_observer(self._refused)
        except Exception as error:
            self.trouble = f"PyTorch's allocator was not recorded: {error!r}"

    def _refused(self, device, requested, total, free) -> None:
        """PyTorch's observer: runs before the exception is raised, while everything is still held."""
        if not self.recording:
            return
        now = time.monotonic()
        first, self._first_refusal = self._first_refusal, self._first_refusal or now
        if first is not None and self._writing_seconds > SHARE_OF_TIME * (now - first):
            # The history has this refusal as well: if it is the last, it is written then.
            self.snapshot = None
            return
        self.write()
        self._writing_seconds += time.monotonic() - now

    def write(self) -> None:
        """Writes a snapshot, or says in `trouble` why it cannot."""
        import os

        self.snapshot = None
        path = None
        try:
            folder = self._place()
            if folder is None:
                return
            path = os.path.join(folder, "snapshot.pickle")
            sys.modules["torch"].cuda.memory._dump_snapshot(path)
            self.snapshot = path
        except Exception as error:
            self.trouble = f"no snapshot of PyTorch's allocator: {error!r}"
            # Half a snapshot, as on a full disk, is of no use and takes the room of what is.
            if path is not None and os.path.exists(path):
                os.remove(path)
