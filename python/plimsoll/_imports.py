"""Doing something when a module is imported, without importing it."""

import sys
from typing import Callable


class AfterImport:
    """Calls an action with a module as soon as the program has imported it, once.

    It is a finder, asked before all others, that leaves finding to them.
    """

    def __init__(self, name: str, action: Callable) -> None:
        self._name = name
        self._action = action

    def install(self) -> None:
        if self._name in sys.modules:
            self._act(sys.modules[self._name])
        else:
            sys.meta_path.insert(0, self)

    def remove(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, name, path=None, target=None):
        if name != self._name:
            return None
        self.remove()
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find else None
            if spec is not None:
                self._hook(spec)
                return spec
        # Not found now: it may be installed later.
        sys.meta_path.insert(0, self)
        return None

    def _hook(self, spec) -> None:
        """Lets the loader of that one module call the action when it is done."""
        loader = spec.loader
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return

        def execute_and_act(module) -> None:
            execute(module)
            # Some loaders serve many modules.
            if module.__name__ == self._name:
                del loader.exec_module
                self._act(module)

        try:
            loader.exec_module = execute_and_act
        except AttributeError:
            # A loader without room for it: the module is imported as it always was.
            pass

    def _act(self, module) -> None:
        try:
            self._action(module)
        except Exception as error:
            print(f"plimsoll: memory is not recorded: {error!r}", file=sys.stderr)
