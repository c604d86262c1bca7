"""The `plimsoll` program that came with this package: where it is, and calling it."""

import os
import sys
from typing import Dict, Iterable, List

# Reading is bounded by the program itself (1 GiB, 30 s); this is for a machine that is stuck.
LIMIT_SECONDS = 180


class ProgramError(Exception):
    """The program is missing, or could not do what it was asked."""


def find() -> str:
    """The path of the program.

    `PLIMSOLL_PROGRAM` names it; else it is where pip puts scripts of this Python, or on the PATH.
    """
    import shutil
    import sysconfig

    name = "plimsoll" + (sysconfig.get_config_var("EXE") or "")
    named = os.environ.get("PLIMSOLL_PROGRAM")
    places = [named] if named else [os.path.join(folder, name) for folder in _folders()]
    for path in places:
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    found = None if named else shutil.which(name)
    if found:
        return found
    where = ", ".join(places) + ("" if named else " and the PATH")
    raise ProgramError(f"the program `plimsoll` is not installed (looked at {where}): pip install plimsoll")


def _folders() -> Iterable[str]:
    import sysconfig

    folders: List[str] = [sysconfig.get_path("scripts")]
    user = "nt_user" if os.name == "nt" else "posix_user"
    if user in sysconfig.get_scheme_names():
        folders.append(sysconfig.get_path("scripts", user))
    if sys.executable:
        folders.append(os.path.dirname(sys.executable))
    # A package installed by `pip install --target DIR` has its scripts in DIR/bin.
    folders.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bin"))
    return dict.fromkeys(folders)


def run(arguments: List[str], text: "str | None" = None) -> str:
    """What the program prints for these arguments, with `text` as its standard input."""
    import subprocess

    try:
        done = subprocess.run(
            [find(), *arguments],
            input=(text or "").encode("utf-8", "replace"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=LIMIT_SECONDS,
            env=_environment(),
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ProgramError(f"the program `plimsoll` could not be run: {error}") from error
    printed = done.stdout.decode("utf-8", "replace")
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip() or _error(printed)
        raise ProgramError(said or f"the program `plimsoll` ended with status {done.returncode}")
    return printed


def _error(printed: str) -> str:
    """The message of an error that was printed as data, as the program does where data was asked for."""
    import json

    try:
        return str(json.loads(printed)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return ""


def _environment() -> Dict[str, str]:
    """The environment, with the width of the terminal that the answer is for: the program writes to a pipe."""
    import shutil

    environment = dict(os.environ)
    environment.setdefault("COLUMNS", str(shutil.get_terminal_size((100, 24)).columns))
    return environment
