"""Being told of an import."""

from support import Case

# Any package will do; the real ones may be installed where this runs.
HOOK = """
import importlib, os
from plimsoll._imports import AfterImport
AfterImport("framework", lambda module: print("imported", module.name)).install()
"""


class Imports(Case):
    def test_a_package_that_is_not_there_can_come_later(self):
        self.write("later/__init__.py", "name = 'framework'")
        ran = self.run_program(
            HOOK
            + """
try:
    import framework
except ImportError:
    os.rename("later", "framework")
importlib.invalidate_caches()
import framework
importlib.reload(framework)
"""
        )
        self.assertEqual((ran.out, ran.err), ("imported framework\n", ""))

    def test_a_fault_in_what_follows_an_import_is_a_line(self):
        self.write("framework/__init__.py", "")
        ran = self.run_program(HOOK + "import framework\nprint('went on')")
        self.assertEqual((ran.status, ran.out), (0, "went on\n"))
        self.assertTrue(ran.err.startswith("plimsoll: memory is not recorded: AttributeError"), ran.err)
        self.assertEqual(ran.err.count("\n"), 1)
