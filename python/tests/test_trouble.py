"""What goes wrong while a failure is reported must never hide the failure."""

import errno
import os

from support import Case

DIE = "\nraise MemoryError('too much')\n"


class Trouble(Case):
    def assert_one_line(self, ran, words):
        self.assert_own_error(ran, "MemoryError: too much")
        lines = [line for line in ran.err.splitlines() if words in line]
        self.assertEqual(len(lines), 1, ran.err)
        self.assertTrue(lines[0].startswith("plimsoll: "), ran.err)

    def test_a_fault_of_our_own_is_one_line(self):
        for text in [
            "import plimsoll._failure as part\ndef fail(error): raise RuntimeError('a fault')\npart.of_memory = fail",
            "import plimsoll._remains as part\ndef fail(*of): raise RuntimeError('a fault')\npart.Remains.collect = fail",
        ]:
            self.assert_one_line(self.run_program(text + DIE), "no verdict: a fault")

    def test_a_program_that_is_missing_is_one_line(self):
        ran = self.run_program(DIE, PLIMSOLL_PROGRAM="/nowhere/plimsoll")
        self.assert_one_line(ran, "no verdict: the program `plimsoll` is not installed (looked at /nowhere/plimsoll)")
        self.assertIn("message.txt", os.listdir(ran.left[0]))

    def test_a_program_that_fails_is_one_line(self):
        program = self.write("broken", "#!/bin/sh\necho several >&2\necho lines >&2\nexit 3\n")
        program.chmod(0o755)
        self.assert_one_line(self.run_program(DIE, PLIMSOLL_PROGRAM=str(program)), "no verdict: several")

    def test_an_interruption_ends_the_report_and_nothing_else(self):
        text = "import plimsoll._program as part\ndef fail(*of): raise KeyboardInterrupt\npart.run = fail"
        self.assert_one_line(self.run_program(text + DIE), "interrupted")

    def test_a_folder_that_cannot_be_made_costs_the_folder(self):
        text = "import os\ndef fail(*of): raise OSError({}, 'No space left on device')\nos.mkdir = fail"
        ran = self.run_program(text.format(errno.ENOSPC) + "\nraise MemoryError('RESOURCE_EXHAUSTED: Out of memory "
                               "allocating 17592186044416 bytes.')\n")
        self.assert_own_error(ran, "RESOURCE_EXHAUSTED")
        self.assertEqual(ran.left, [])
        self.assertIn("No space left on device", ran.err)
        self.assertIn("16.0 TiB", ran.err, "the message alone gets a verdict")

    def test_a_place_that_is_no_folder_is_left_for_another(self):
        self.write("file", "")
        self.write("elsewhere/kept", "")
        ran = self.run_program(DIE, PLIMSOLL_CRASH_DIR=str(self.folder / "file"), TMPDIR=str(self.folder / "elsewhere"))
        self.assert_own_error(ran, "MemoryError: too much")
        self.assertEqual(len(list((self.folder / "elsewhere").glob("plimsoll-crash-*"))), 1, ran.err)

    def test_a_disk_that_is_full_costs_what_does_not_fit(self):
        text = f"""
        import builtins
        original = builtins.open
        def fail(path, mode="r", *of, **more):
            if "w" in mode:
                raise OSError({errno.ENOSPC}, "No space left on device")
            return original(path, mode, *of, **more)
        builtins.open = fail
        """.replace("\n        ", "\n")
        ran = self.run_program(text + DIE)
        self.assert_own_error(ran, "MemoryError: too much")
        self.assertIn("plimsoll: the traceback could not be had: OSError(28, 'No space left on device')", ran.err)

    def test_a_program_without_a_standard_error_stream_ends_as_it_would(self):
        for text in ["import sys; sys.stderr = None", "import sys; sys.stderr.close()"]:
            self.assertEqual(self.run_program(text + DIE).status, 1)

    def test_a_program_in_a_folder_that_is_gone_ends_as_it_would(self):
        text = "import os\nos.mkdir('gone')\nos.chdir('gone')\nos.rmdir('../gone')"
        ran = self.run_program(text + DIE)
        self.assert_own_error(ran, "MemoryError: too much")
        self.assertEqual(len(ran.left), 1, "in the folder it was started in")

    def test_a_forked_child_leaves_its_parent_s_folder_alone(self):
        ran = self.run_program(
            """
            import os, plimsoll
            place = plimsoll.watch()._remains.place()
            if os.fork() == 0:
                raise SystemExit
            os.wait()
            print(os.path.isdir(place))
            """
        )
        self.assertEqual((ran.status, ran.out, ran.err), (0, "True\n", ""))
