"""`plimsoll.explain` and `plimsoll.watch`, in scripts and in notebooks."""

import html
import importlib.util
import os
import shutil
import unittest
from pathlib import Path

import plimsoll
from support import Case, leaking_snapshot

MESSAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 23.69 GiB of "
    "which 10.00 GiB is free. Process 1 has 13.00 GiB memory in use. Of the allocated memory 12.00 GiB is allocated by "
    "PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated."
)


class Explain(Case):
    def setUp(self):
        super().setUp()
        before = os.getcwd()
        os.chdir(self.folder)
        self.addCleanup(os.chdir, before)

    def test_a_file_is_explained_as_text_as_data_and_as_a_page(self):
        explanation = plimsoll.explain(leaking_snapshot(self.folder / "snapshot.pickle"))
        self.assertEqual(explanation.verdict, "leaking")
        self.assertEqual(explanation.data["verdicts"][0]["kind"], "leaking")
        self.assertIn("Leaking", str(explanation))
        self.assertEqual(repr(explanation), str(explanation))
        self.assertIn("<html", explanation.page())

    def test_the_page_is_in_a_frame_that_reaches_nothing_of_the_notebook(self):
        shown = plimsoll.explain(leaking_snapshot(self.folder / "snapshot.pickle"))._repr_html_()
        begin, end = '<iframe sandbox="allow-scripts" ', '"></iframe>'
        self.assertTrue(shown.startswith(begin) and shown.endswith(end))
        attribute = shown.partition(' srcdoc="')[2][: -len(end)]
        self.assertNotIn('"', attribute)
        self.assertNotIn("<", attribute)
        self.assertIn("<html", html.unescape(attribute))

    def test_an_exception_is_explained_and_leaves_a_folder_that_can_be_explained(self):
        try:
            raise RuntimeError(MESSAGE)
        except RuntimeError as error:
            explanation = plimsoll.explain(error)
        self.assertIn("20.0 GiB", str(explanation))
        (folder,) = self.folder.glob("plimsoll-crash-*")
        again = plimsoll.explain(folder)
        self.assertEqual(again.data["verdicts"], explanation.data["verdicts"])

    def test_what_says_nothing_about_memory_is_refused_in_words(self):
        with self.assertRaisesRegex(plimsoll.ProgramError, "nothing about"):
            plimsoll.explain(self.write("notes.txt", "hello\n"))
        with self.assertRaisesRegex(plimsoll.ProgramError, "no-such-file"):
            plimsoll.explain("no-such-file")

    def test_a_block_that_runs_out_is_reported_and_its_error_goes_on(self):
        ran = self.run_program(
            f"""
            import plimsoll
            try:
                with plimsoll.watch():
                    raise RuntimeError({MESSAGE!r})
            except RuntimeError as error:
                print("caught", str(error)[:10])
            import sys
            print(sys.excepthook is sys.__excepthook__)
            """,
            PLIMSOLL_EXPLAIN=None,
        )
        self.assertEqual((ran.status, ran.out), (0, "caught torch.OutO\nTrue\n"))
        self.assert_verdict(ran, ["message.txt"])

    def test_a_failure_is_reported_once(self):
        ran = self.run_program(
            f"import plimsoll\nwith plimsoll.watch():\n    raise RuntimeError({MESSAGE!r})"
        )
        self.assertEqual(ran.err.count("memory ran out; what is known of it"), 1, ran.err)
        self.assertEqual(len(ran.left), 1)

    @unittest.skipUnless(importlib.util.find_spec("IPython"), "IPython is not installed")
    def test_a_cell_that_runs_out_shows_the_explanation_under_its_traceback(self):
        for first_cell, variable in [("import plimsoll; plimsoll.watch()", None), ("", "1")]:
            with self.subTest(PLIMSOLL_EXPLAIN=variable):
                self.run_cells(first_cell, variable)

    def run_cells(self, first_cell, variable):
        for folder in self.folder.glob("plimsoll-crash-*"):
            shutil.rmtree(folder)
        ran = self.run_program(
            f"""
            from IPython.core.interactiveshell import InteractiveShell
            from IPython.utils.capture import capture_output
            shell = InteractiveShell.instance()
            shell.run_cell({first_cell!r}, silent=True)
            with capture_output() as captured:
                shell.run_cell("1 / 0")
            print(len(captured.outputs))
            with capture_output() as captured:
                shell.run_cell("raise RuntimeError({MESSAGE!r})")
            (shown,) = captured.outputs
            print(sorted(shown.data), captured.stdout.count("OutOfMemoryError") > 0)
            """,
            PLIMSOLL_EXPLAIN=variable,
            IPYTHONDIR=str(self.folder),
        )
        self.assertEqual((ran.status, ran.out), (0, "0\n['text/html', 'text/plain'] True\n"), ran.err)
        self.assertEqual(len(ran.left), 1)

    def test_the_package_has_its_types(self):
        self.assertTrue((Path(plimsoll.__file__).parent / "py.typed").exists())
