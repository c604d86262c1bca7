"""Watching a program: what is recorded while it runs, and what is said when it dies of memory.

The program's own error comes first and is never changed: its traceback is printed by whoever would have printed it,
its exit status stays, and whatever goes wrong in here ends in one line on the standard error stream.
"""

import atexit
import os
import sys
import threading
from typing import Optional, Tuple

from plimsoll import _failure
from plimsoll._imports import AfterImport
from plimsoll._remains import Remains, traceback_of
from plimsoll._torch import Recorder


class Watch:
    """Watches this process until it is stopped, or for the length of a `with` block."""

    def __init__(self) -> None:
        self._start_folder = _current_folder()
        self._remains = Remains(self._start_folder)
        self._recorder = Recorder(lambda: self._remains.place())
        self._torch = AfterImport("torch", self._recorder.attach)
        self._ipython = AfterImport("IPython.core.interactiveshell", self._attach_to_shells)
        self._reporting = threading.Lock()
        self._shell = None

    def __repr__(self) -> str:
        return "memory is watched" if _active is self else "memory is not watched"

    def start(self) -> "Watch":
        """Begins to watch."""
        self._torch.install()
        # Both are kept as objects, to be known again: a bound method is a new one each time.
        self._previous, sys.excepthook = sys.excepthook, self._main_failed
        self._previous_of_threads, threading.excepthook = threading.excepthook, self._thread_failed
        atexit.register(self._at_exit)
        self._ipython.install()
        return self

    def stop(self) -> None:
        """Ends it: what was hooked is as it was, nothing is recorded any more."""
        global _active
        if _active is self:
            _active = None
        self._torch.remove()
        self._ipython.remove()
        # Hooks that another has put over ours stay where they are, and ours calls on.
        if sys.excepthook == self._main_failed:
            sys.excepthook = self._previous
        if threading.excepthook == self._thread_failed:
            threading.excepthook = self._previous_of_threads
        atexit.unregister(self._at_exit)
        if self._shell is not None:
            self._shell.events.unregister("post_run_cell", self._cell_ran)
            self._shell = None
        self._guarded(self._recorder.stop)
        self._guarded(self._remains.discard)

    def __enter__(self) -> "Watch":
        return self

    def __exit__(self, kind, error, trace) -> None:
        # The traceback is printed by whoever catches it, after this.
        self._guarded(self.report, error)
        self.stop()

    def report(self, error: Optional[BaseException]) -> None:
        """Says why memory was full under the program's own error, if that is what it died of."""
        if error is None or not _is_new(error) or not _failure.of_memory(error):
            return
        with self._reporting:
            remains = self.remains()
            remains.collect(error, self._recorder)
            _say(_text(error, remains))

    def remains(self) -> Remains:
        """Where to leave what there is about a failure. The next one has a place of its own."""
        remains, self._remains = self._remains, Remains(self._start_folder)
        return remains

    @property
    def recorder(self) -> Recorder:
        return self._recorder

    def _main_failed(self, kind, error, trace) -> None:
        try:
            self._previous(kind, error, trace)
        finally:
            self._guarded(self.report, error)

    def _thread_failed(self, failed) -> None:
        try:
            self._previous_of_threads(failed)
        finally:
            self._guarded(self.report, failed.exc_value)

    def _attach_to_shells(self, interactiveshell) -> None:
        """Watches the IPython shell that this runs in, or the next one: at the start of a kernel there is none yet."""
        shell = interactiveshell.InteractiveShell
        if shell.initialized():
            self._attach_to(shell.instance())
            return
        begin = shell.__init__

        def begin_and_attach(new, *arguments, **more) -> None:
            shell.__init__ = begin
            begin(new, *arguments, **more)
            self._guarded(self._attach_to, new)

        shell.__init__ = begin_and_attach

    def _attach_to(self, shell) -> None:
        self._shell = shell
        shell.events.register("post_run_cell", self._cell_ran)

    def _cell_ran(self, result) -> None:
        self._guarded(self._display, result.error_in_exec)

    def _display(self, error: Optional[BaseException]) -> None:
        """The report of a notebook: a page, where a script has text."""
        if error is None or not _is_new(error) or not _failure.of_memory(error):
            return
        from IPython.display import display

        from plimsoll._explanation import explanation_of

        remains = self.remains()
        remains.collect(error, self._recorder)
        _say(_left(remains))
        display(explanation_of(remains))

    def _at_exit(self) -> None:
        # A program with an excepthook of its own may not have called ours; the interpreter still knows what it died of.
        self._guarded(self.report, getattr(sys, "last_value", None))
        self._guarded(self._remains.discard)

    def _guarded(self, action, *arguments) -> None:
        """Does what must not disturb the program, whatever becomes of it."""
        try:
            action(*arguments)
        except KeyboardInterrupt:
            _say("plimsoll: interrupted\n")
        except BaseException as trouble:
            _say(f"plimsoll: no verdict: {_in_short(trouble)}\n")


_active: Optional[Watch] = None


def start() -> Watch:
    """Watches this process; once, however often it is asked for."""
    global _active
    if _active is None:
        _active = Watch().start()
    return _active


def watch() -> Watch:
    """Watches this process, or a `with` block, and says why if it dies of memory.

    In a script the verdict comes under the traceback, in a notebook as a page under the cell. Call it before the GPU is
    first used, so that PyTorch's history has everything.

    >>> import plimsoll
    >>> watching = plimsoll.watch()
    >>> watching.stop()
    """
    return start()


def remains_of(error: BaseException) -> Tuple[Remains, Optional[Recorder]]:
    """Where to leave what there is about a failure, and what was recorded of it, whether or not anything is watched."""
    _is_new(error)  # Whoever asks has been told: it is not reported again.
    if _active is not None:
        return _active.remains(), _active.recorder
    return Remains(_current_folder()), None


def _text(error: BaseException, remains: Remains) -> str:
    """What is said under the traceback."""
    from plimsoll import _program

    attempts = []
    if remains.files:
        attempts.append([*remains.files, "--html", os.path.join(remains.folder or "", "page.html")])
    if len(remains.files) > 1:
        attempts += [[file] for file in remains.files]
    # If nothing could be written, the message is enough for a verdict.
    text = None if remains.files else traceback_of(error)
    said = "\n" + _left(remains)
    trouble = None
    for arguments in attempts or [["-"]]:
        try:
            return said + "\n" + _program.run(["explain", *arguments], text)
        except _program.ProgramError as refused:
            trouble = trouble or refused
    return said + f"plimsoll: no verdict: {_in_short(trouble)}\n"


def _left(remains: Remains) -> str:
    lines = [f"plimsoll: {trouble}" for trouble in remains.trouble]
    if remains.folder is not None:
        lines.append(f"plimsoll: memory ran out; what is known of it is in {remains.folder}")
    return "".join(line + "\n" for line in lines)


def _say(text: str) -> None:
    """Writes to the standard error stream, if there is one."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except Exception:
        pass


def _in_short(trouble: object) -> str:
    """An error in one line."""
    text = str(trouble) or repr(trouble)
    return text.splitlines()[0][:500]


def _is_new(error: BaseException) -> bool:
    """Whether this exception was not looked at before. It was, from now on: the same one may come by several ways."""
    if getattr(error, "__plimsoll_seen__", False):
        return False
    try:
        error.__plimsoll_seen__ = True  # type: ignore[attr-defined]
    except Exception:
        pass
    return True


def _current_folder() -> str:
    try:
        return os.getcwd()
    except OSError:
        return os.curdir
