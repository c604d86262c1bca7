"""Why a program's memory was full, said where it ran out.

Three ways to the same thing, from the least to the most change of a program:

- ``plimsoll run train.py ...`` or ``PLIMSOLL_EXPLAIN=1 python train.py ...``: no change.
- ``plimsoll.watch()``: one line in a script or a cell of a notebook.
- ``plimsoll.explain(path_or_exception)``: for what was left behind already.

Importing this module costs next to nothing and changes nothing. It may happen at the start of every Python process, so the
modules of this package import what only a failure needs when there is one.
"""

from plimsoll._explanation import Explanation, explain
from plimsoll._program import ProgramError
from plimsoll._watch import Watch, watch

__all__ = ["Explanation", "ProgramError", "Watch", "explain", "watch"]
