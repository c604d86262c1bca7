"""``python -m plimsoll ...`` is ``plimsoll ...``."""

import os
import subprocess
import sys

from plimsoll import _program


def main() -> None:
    try:
        command = [_program.find(), *sys.argv[1:]]
    except _program.ProgramError as error:
        sys.exit(f"error: {error}")
    if sys.platform == "win32":
        sys.exit(subprocess.run(command).returncode)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
