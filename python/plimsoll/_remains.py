"""What a program that ran out of memory leaves behind: a folder with all that is needed to say why.

Every part is written by itself, and one that cannot be is named in `trouble`: a full disk, or memory that is still short,
must cost no more than that part.
"""

import os
import sys
import time
from typing import Any, Callable, Dict, List, Optional

from plimsoll import _program
from plimsoll._failure import chain
from plimsoll._torch import Recorder

# Packages whose version decides which settings there are.
PACKAGES = (
    "accelerate cupy deepspeed flax jax jaxlib keras lightning numpy onnxruntime paddle tensorflow torch transformers vllm"
).split()

# How much of the end of a log is kept: a dump of an allocator is megabytes.
LOG_BYTES = 16 << 20

# What only the allocator of TensorFlow and JAX writes to a log.
_DUMP = b"bfc_allocator"


class Remains:
    """The folder of one failure, and what was written to it."""

    def __init__(self, start: str) -> None:
        """`start` is the folder that the program was started in; `PLIMSOLL_CRASH_DIR` names another."""
        self._places = [os.environ.get("PLIMSOLL_CRASH_DIR") or start]
        self._process = os.getpid()
        self.folder: Optional[str] = None
        self.trouble: List[str] = []
        #: What `plimsoll explain` is given, the most telling first.
        self.files: List[str] = []

    def place(self) -> Optional[str]:
        """The folder, made when it is first needed; in the folder for temporary files if it must be; or none."""
        if self.folder is not None and self._process == os.getpid():
            return self.folder
        import tempfile

        self._process = os.getpid()
        name = "plimsoll-crash-{}-{}".format(time.strftime("%Y%m%d-%H%M%S", time.gmtime()), self._process)
        for place in [*self._places, tempfile.gettempdir()]:
            for suffix in ("", *(f"-{number}" for number in range(2, 10))):
                try:
                    folder = os.path.join(place, name + suffix)
                    os.mkdir(folder, 0o700)
                    self.folder = folder
                    return folder
                except FileExistsError:
                    continue
                except OSError as error:
                    self.trouble.append(f"no folder in {place}: {error.strerror or error}")
                    break
        self.folder = None
        return None

    def discard(self) -> None:
        """Removes the folder with the snapshot of a refusal that the program survived."""
        if self.folder is None or self._process != os.getpid():
            return
        import shutil

        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder = None

    def collect(self, error: BaseException, recorder: Optional[Recorder]) -> None:
        """Writes all that there is about this failure."""
        if self._attempt("a folder for what is left", self.place) is None:
            return
        message = self._attempt("the traceback", lambda: self._write("message.txt", traceback_of(error) + _own_limit()))
        if recorder is not None:
            if recorder.recording and recorder.snapshot is None:
                self._attempt("a snapshot", recorder.write)
            if recorder.trouble:
                self.trouble.append(recorder.trouble)
            self._add(recorder.snapshot)
        log = self._attempt("the log", self._log)
        # A log that has the allocator's dump has the message too.
        self._add(log or message)
        if _is_of_jax(error):
            self._add(self._attempt("JAX's device memory profile", self._device_memory_profile))
        self._attempt("facts about the machine", lambda: self._write("environment.json", _facts()))

    def _attempt(self, what: str, action: Callable):
        try:
            return action()
        except Exception as error:
            self.trouble.append(f"{what} could not be had: {error!r}")
            return None

    def _add(self, path: Optional[str]) -> None:
        if path is not None:
            self.files.append(path)

    def _path(self, name: str) -> str:
        assert self.folder is not None
        return os.path.join(self.folder, name)

    def _write(self, name: str, text: str) -> str:
        path = self._path(name)
        with open(path, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
        return path

    def _log(self) -> Optional[str]:
        """The standard error stream, if it goes to a file and that has the dump of an allocator."""
        import stat

        sys.stderr.flush()
        if not stat.S_ISREG(os.fstat(2).st_mode):
            return None
        with open("/proc/self/fd/2" if os.path.exists("/proc/self/fd/2") else "/dev/fd/2", "rb") as log:
            log.seek(max(0, os.fstat(2).st_size - LOG_BYTES))
            text = log.read()
        if _DUMP not in text:
            return None
        path = self._path("log.txt")
        with open(path, "wb") as file:
            file.write(text)
        return path

    def _device_memory_profile(self) -> str:
        path = self._path("device_memory.prof")
        sys.modules["jax"].profiler.save_device_memory_profile(path)
        return path


def traceback_of(error: BaseException) -> str:
    """The traceback as Python prints it."""
    import traceback

    return "".join(traceback.format_exception(type(error), error, error.__traceback__))


def _own_limit() -> str:
    """The limit on the addresses of this process, where one is set, and what it has mapped: the host may refuse for that."""
    try:
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit == resource.RLIM_INFINITY:
            return ""
        with open("/proc/self/statm") as file:
            mapped = int(file.read().split()[0]) * resource.getpagesize()
    except (ImportError, OSError, ValueError, IndexError):
        return ""
    return f"this process may map at most {limit} bytes (ulimit -v), and had mapped {mapped} bytes\n"


def _is_of_jax(error: BaseException) -> bool:
    """Whether JAX raised it: then its devices are there, and asking it for a profile takes none."""
    kinds = [kind for link in chain(error) for kind in type(link).__mro__]
    return "jax" in sys.modules and any(kind.__module__.split(".")[0] in ("jax", "jaxlib") for kind in kinds)


def _facts() -> str:
    """Versions, and what `plimsoll doctor` says of the machine and of the settings, as JSON.

    Nothing else of the environment is written down, and no arguments: they have secrets.
    """
    import json
    import platform

    versions: Dict[str, str] = {"python": platform.python_version(), "system": platform.platform()}
    for name in PACKAGES:
        version = getattr(sys.modules.get(name), "__version__", None)
        if isinstance(version, str):
            versions[name] = version
    facts: Dict[str, Any] = {"versions": versions, "process": os.getpid()}
    try:
        facts["machine"] = json.loads(_program.run(["doctor", "--json"]))
    except (_program.ProgramError, ValueError) as error:
        facts["machine"] = f"not known: {error}"
    return json.dumps(facts, indent=2, ensure_ascii=False)
