"""Explanations as Python has them: text where text is shown, the page where pages are."""

import os
from typing import Any, Dict, List, Optional, Union

from plimsoll import _program
from plimsoll._remains import Remains

# What a folder that was left behind has for `plimsoll explain`.
_PARTS = ("snapshot.pickle", "log.txt", "message.txt", "device_memory.prof")


class Explanation:
    """Why memory was full, from the files of one run."""

    def __init__(self, files: List[str]) -> None:
        import json

        self.files = files
        #: All of the explanation, as `plimsoll explain --json` prints it.
        self.data: Dict[str, Any] = json.loads(_program.run(["explain", "--json", *files]))
        self._text: Optional[str] = None
        self._page: Optional[str] = None

    @property
    def verdict(self) -> str:
        """The kind of the first verdict, which is the answer: `too-big`, `fragmented`, `leaking`, ..."""
        verdicts = self.data.get("verdicts") or [{}]
        return verdicts[0].get("kind", "unknown")

    def __str__(self) -> str:
        if self._text is None:
            self._text = _program.run(["explain", *self.files])
        return self._text

    __repr__ = __str__

    def page(self) -> str:
        """The page to explore in a browser, as HTML that needs no network."""
        if self._page is None:
            import tempfile

            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "page.html")
                _program.run(["explain", *self.files, "--html", path])
                with open(path, encoding="utf-8") as file:
                    self._page = file.read()
        return self._page

    def _repr_html_(self) -> str:
        import html

        # The page has scripts of its own; in a frame without an origin they reach nothing of the notebook.
        return (
            f'<iframe sandbox="allow-scripts" style="width: 100%; height: 40em; border: 0" srcdoc="{html.escape(self.page(), quote=True)}"></iframe>'
        )


def explain(what: Union[str, "os.PathLike[str]", BaseException]) -> Explanation:
    """Says why memory was full.

    `what` is a file that a program left behind (a snapshot, a log, a profile), the folder that `plimsoll run`,
    `PLIMSOLL_EXPLAIN=1` or `watch()` left, or the exception itself, for which such a folder is made.

    Raises ProgramError if nothing about memory is found in it.
    """
    if isinstance(what, BaseException):
        return explain_failure(what)
    path = os.fspath(what)
    parts = [os.path.join(path, part) for part in _PARTS]
    # A log is there only if it has all of the message.
    found = [part for part in parts if os.path.isfile(part)]
    if os.path.join(path, "log.txt") in found and os.path.join(path, "message.txt") in found:
        found.remove(os.path.join(path, "message.txt"))
    return Explanation(found or [path])


def explain_failure(error: BaseException) -> Explanation:
    """The explanation of an exception, with what can still be had of the moment in which it was raised."""
    from plimsoll import _watch

    remains, recorder = _watch.remains_of(error)
    remains.collect(error, recorder)
    return explanation_of(remains)


def explanation_of(remains: Remains) -> Explanation:
    """The explanation of what was left; of its message alone if the rest cannot be read."""
    if not remains.files:
        raise _program.ProgramError("; ".join(remains.trouble) or "nothing was left behind")
    try:
        return Explanation(remains.files)
    except _program.ProgramError:
        message = [file for file in remains.files if os.path.basename(file) == "message.txt"]
        if message == remains.files or not message:
            raise
        return Explanation(message)
