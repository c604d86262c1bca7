"""Programs that die of memory, as they are: what is under their traceback, and what they leave."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

from support import Case

PROGRAM = os.environ.get("PLIMSOLL_PROGRAM") or str(Path(sys.executable).parent / "plimsoll")


def needs(package):
    return unittest.skipUnless(importlib.util.find_spec(package), package + " is not installed")


class Programs(Case):
    @needs("jax")
    def test_jax_leaves_its_profile_and_gets_a_verdict(self):
        ran = self.run_program(
            """
            import jax.numpy as jnp
            held = jnp.ones((1024, 1024))
            print(jnp.ones((1 << 24, 1 << 22)).sum())
            """,
            JAX_PLATFORMS="cpu",
            JAX_TRACEBACK_FILTERING="off",
        )
        self.assert_own_error(ran, "RESOURCE_EXHAUSTED: Out of memory allocating 281474976710656 bytes")
        self.assertEqual(self.assert_verdict(ran, ["message.txt", "device_memory.prof"]), "host-memory")
        self.assertNotIn("Healthy", ran.said)

    @needs("torch")
    def test_pytorch_on_the_cpu_gets_a_verdict(self):
        ran = self.run_program(
            """
            import resource, torch
            held = torch.ones(1024, 1024)
            resource.setrlimit(resource.RLIMIT_AS, (16 << 30, resource.RLIM_INFINITY))
            more = torch.ones(1 << 33)
            """
        )
        self.assert_own_error(ran, "DefaultCPUAllocator: can't allocate memory: you tried to allocate 34359738368 bytes")
        self.assert_verdict(ran, ["message.txt"])

    @needs("numpy")
    def test_numpy_within_a_limit_leaves_its_message_and_the_limit(self):
        ran = self.run_program(
            """
            import resource, numpy
            resource.setrlimit(resource.RLIMIT_AS, (4 << 30, resource.RLIM_INFINITY))
            numpy.ones(1 << 33)
            """
        )
        self.assert_own_error(ran, "Unable to allocate 64.0 GiB for an array with shape (8589934592,)")
        (folder,) = ran.left
        self.assertIn("Unable to allocate 64.0 GiB", (folder / "message.txt").read_text())
        facts = json.loads((folder / "environment.json").read_text())
        self.assertEqual(facts["machine"]["system"]["limits"]["address_space_bytes"], 4 << 30)
        self.assertIn("numpy", facts["versions"])

    def test_a_limit_that_the_process_has_itself_is_named(self):
        ran = self.run_program(
            """
            import resource
            resource.setrlimit(resource.RLIMIT_AS, (1 << 30, resource.RLIM_INFINITY))
            kept = []
            while True:
                kept.append(bytearray(64 << 20))
            """
        )
        self.assert_own_error(ran, "MemoryError")
        self.assertEqual(self.assert_verdict(ran, ["message.txt"]), "host-memory")
        self.assertIn("its own limit (ulimit -v)", " ".join(ran.said.split()))

    def test_a_limit_that_is_far_away_is_not_named(self):
        ran = self.run_program(
            """
            import resource
            resource.setrlimit(resource.RLIMIT_AS, (1 << 44, resource.RLIM_INFINITY))
            raise MemoryError("too much")
            """
        )
        self.assertEqual(self.assert_verdict(ran, ["message.txt"]), "host-memory")
        self.assertNotIn("ulimit -v", ran.said)

    def test_only_settings_that_bear_on_memory_are_kept(self):
        ran = self.run_program("raise MemoryError", WANDB_API_KEY="hush", XLA_PYTHON_CLIENT_MEM_FRACTION=".5")
        (folder,) = ran.left
        left = "".join((folder / name).read_text() for name in ("environment.json", "message.txt"))
        self.assertNotIn("hush", left)
        settings = json.loads((folder / "environment.json").read_text())["machine"]["settings"]
        self.assertIn({"name": "XLA_PYTHON_CLIENT_MEM_FRACTION", "value": ".5", "wrong": None}, settings)
        self.assertEqual(folder.stat().st_mode & 0o77, 0, "others cannot read it")

    def test_a_log_with_an_allocator_s_dump_is_kept(self):
        self.write("train.py", """
            import sys
            print("2026-01-01 00:00:00.0: I external/local_xla/xla/tsl/framework/bfc_allocator.cc:1049] "
                  "BFCAllocator dump for GPU_0_bfc", file=sys.stderr)
            raise MemoryError("RESOURCE_EXHAUSTED: Out of memory allocating 1024 bytes.")
            """)
        with open(self.folder / "log", "w") as log:
            status = subprocess.run([sys.executable, "train.py"], cwd=self.folder, stderr=log,
                                    env={**os.environ, "PLIMSOLL_EXPLAIN": "1"}).returncode
        self.assertEqual(status, 1)
        (folder,) = self.folder.glob("plimsoll-crash-*")
        self.assertIn("BFCAllocator dump", (folder / "log.txt").read_text())

    def test_a_thread_that_runs_out_is_reported(self):
        ran = self.run_program(
            """
            import threading
            def work():
                raise MemoryError("of a thread")
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            print("went on")
            """
        )
        self.assertEqual((ran.status, ran.out), (0, "went on\n"))
        self.assertEqual(len(ran.left), 1, ran.err)

    def test_a_program_with_an_excepthook_of_its_own_is_reported_too(self):
        ran = self.run_program(
            """
            import sys
            sys.excepthook = lambda kind, error, trace: print("mine:", error, file=sys.stderr)
            raise MemoryError("too much")
            """
        )
        self.assertEqual(ran.status, 1)
        self.assertTrue(ran.err.startswith("mine: too much\n"), ran.err)
        self.assertEqual(len(ran.left), 1, ran.err)

    def test_the_program_run_by_the_command_is_watched(self):
        ran = self.run_program("import sys; print(sys.argv); raise MemoryError('too much')",
                               command=(PROGRAM, "run"), PLIMSOLL_EXPLAIN=None,
                               PATH=os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"])
        self.assertEqual(ran.out, "['train.py']\n")
        self.assert_own_error(ran, "MemoryError: too much")
        self.assertEqual(len(ran.left), 1, ran.err)

    def test_a_program_that_the_system_kills_leaves_a_folder_and_its_status(self):
        ran = self.run_program("import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
                               command=(PROGRAM, "run"), PLIMSOLL_EXPLAIN=None)
        self.assertEqual(ran.status, 137)
        self.assertIn("was killed (SIGKILL, exit status 137)", ran.err)
        self.assertEqual(len(ran.left), 1, ran.err)
        # It was small, and nothing was killed for memory meanwhile.
        self.assertNotIn("Host memory:", ran.err)

    def test_code_in_place_of_a_script_is_run_by_python(self):
        ran = subprocess.run([PROGRAM, "run", "-c", "import sys; print(sys.argv, 'plimsoll' in sys.modules)", "--x"],
                             cwd=self.folder, capture_output=True, text=True,
                             env={**os.environ, "PATH": os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]})
        self.assertEqual((ran.returncode, ran.stdout, ran.stderr), (0, "['-c', '--x'] True\n", ""))


class NothingFails(Case):
    def test_a_program_that_ends_well_is_as_without(self):
        for text in ["print('done')", "import sys; print('done'); sys.exit(0)"]:
            ran = self.run_program(text)
            self.assertEqual((ran.status, ran.out, ran.err, ran.left), (0, "done\n", "", []))

    def test_errors_that_are_not_of_memory_are_as_without(self):
        for text in ["raise ValueError('wrong')", "import sys; sys.exit(3)", "raise KeyboardInterrupt", "1 +"]:
            with_it, without = self.run_program(text), self.run_program(text, PLIMSOLL_EXPLAIN=None)
            self.assertEqual((with_it.status, with_it.err, with_it.left), (without.status, without.err, []), text)

    def test_an_error_that_is_caught_leaves_nothing(self):
        ran = self.run_program("try:\n    raise MemoryError\nexcept MemoryError:\n    print('went on')")
        self.assertEqual((ran.status, ran.out, ran.err, ran.left), (0, "went on\n", "", []))

    def test_unset_or_zero_it_is_not_even_imported(self):
        for value in [None, "", "0"]:
            ran = self.run_program("import sys; print('plimsoll' in sys.modules)", PLIMSOLL_EXPLAIN=value)
            self.assertEqual((ran.out, ran.err), ("False\n", ""), value)
            self.assertEqual(self.run_program("raise MemoryError", PLIMSOLL_EXPLAIN=value).left, [])

    def test_another_s_sitecustomize_is_left_alone(self):
        self.write("site/sitecustomize.py", "print('custom')")
        ran = self.run_program("import sys; print('plimsoll' in sys.modules)", PYTHONPATH=str(self.folder / "site"))
        self.assertEqual((ran.out, ran.err), ("custom\nTrue\n", ""))

    def test_no_framework_is_imported(self):
        ran = self.run_program("import sys; print({'torch', 'jax', 'numpy', 'subprocess'} & set(sys.modules))")
        self.assertEqual((ran.out, ran.err), ("set()\n", ""))


class Installed(Case):
    def test_the_module_is_the_program(self):
        versions = [subprocess.run([*command, "--version"], capture_output=True, text=True, check=True).stdout
                    for command in ([PROGRAM], [sys.executable, "-m", "plimsoll"])]
        self.assertEqual(versions[0], versions[1])
        self.assertRegex(versions[0], r"^plimsoll \d+\.\d+\.\d+\n$")

    @unittest.skipUnless(shutil.which("true"), "there is no `true`")
    def test_a_variable_names_another_program(self):
        ran = subprocess.run([sys.executable, "-m", "plimsoll"], env={**os.environ, "PLIMSOLL_PROGRAM": shutil.which("true")},
                             capture_output=True)
        self.assertEqual((ran.returncode, ran.stdout), (0, b""))
