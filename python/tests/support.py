"""Programs that run out of memory, run as people run them: in a folder, in a process of their own."""

import gzip
import json
import os
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# A recording of PyTorch's own allocator on a GPU, of a program that leaks.
LEAKING = ROOT / "crates/plimsoll-explain/tests/data/torch-leak.pickle.gz"


class Ran:
    """How a program ended, what it printed, and the folders that were left."""

    def __init__(self, done, folder):
        self.status = done.returncode
        self.out = done.stdout
        self.err = done.stderr
        self.left = sorted(folder.glob("plimsoll-crash-*"))

    @property
    def said(self):
        """What came under the traceback."""
        return self.err.partition("plimsoll: ")[2]


class Case(unittest.TestCase):
    """A folder to run programs in."""

    maxDiff = None

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name).resolve()

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    def run_program(self, text, command=(sys.executable,), **environment):
        """Runs a Python program with PLIMSOLL_EXPLAIN=1, or what `environment` has."""
        script = self.write("train.py", text)
        whole = {**os.environ, "PLIMSOLL_EXPLAIN": "1", "COLUMNS": "100", **environment}
        whole = {name: value for name, value in whole.items() if value is not None}
        done = subprocess.run(
            [*command, script.name], cwd=self.folder, env=whole, capture_output=True, text=True, timeout=300
        )
        return Ran(done, self.folder)

    def assert_own_error(self, ran, last_line):
        """The program's own traceback came first, whole and once, and its exit status stayed."""
        traceback = ran.err.partition("\nplimsoll: ")[0].strip()
        self.assertTrue(traceback.startswith("Traceback (most recent call last):"), ran.err)
        self.assertIn(last_line, traceback)
        self.assertEqual(ran.err.count("Traceback (most recent call last):"), 1, ran.err)
        self.assertEqual(ran.status, 1)

    def assert_verdict(self, ran, files):
        """What was said is what the program says of the files that were left."""
        (folder,) = ran.left
        self.assertLessEqual({*files, "environment.json", "page.html"}, set(os.listdir(folder)), ran.err)
        program = os.environ.get("PLIMSOLL_PROGRAM") or str(Path(sys.executable).parent / "plimsoll")
        explained = subprocess.run(
            [program, "explain", "--json", *(str(folder / file) for file in files)],
            capture_output=True,
            check=True,
        )
        verdict = json.loads(explained.stdout)["verdicts"][0]
        self.assertIn(verdict["sentence"].split(), Windows(ran.err.split(), len(verdict["sentence"].split())))
        return verdict["kind"]


class Windows:
    """All runs of so many words in a text."""

    def __init__(self, words, count):
        self.words, self.count = words, count

    def __contains__(self, wanted):
        return any(self.words[at : at + self.count] == wanted for at in range(len(self.words)))

    def __repr__(self):
        return " ".join(self.words)


def leaking_snapshot(path):
    """Writes the recording of a leaking program."""
    Path(path).write_bytes(gzip.decompress(LEAKING.read_bytes()))
    return path
