"""Start-up of a process of the tests: PyTorch's compiler is imported when something is compiled.

Every optimizer of PyTorch imports the compiler to keep itself out of it, which takes longer than
most trainings of the tests. In place of the compiler stands a module whose functions for that do
nothing; asked for anything else, it imports the compiler.
"""

import importlib
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

NAME = "torch._dynamo"


class Deferred(ModuleType):
    """The compiler before its import."""

    def disable(self, function, *args, **options):
        return function

    def graph_break(self):
        pass

    def reset(self):
        pass

    def __getattr__(self, name):
        if sys.modules.get(NAME) is not self or (name.startswith("__") and name != "__path__"):
            raise AttributeError(name)
        sys.meta_path.remove(deferring)
        del sys.modules[NAME], sys.modules["torch"]._dynamo
        return getattr(importlib.import_module(NAME), name)


class Deferring(MetaPathFinder, Loader):
    """Finds the compiler before Python does."""

    def find_spec(self, name, path, target=None):
        return ModuleSpec(name, self) if name == NAME else None

    def create_module(self, spec):
        return Deferred(NAME)

    def exec_module(self, module):
        pass


sys.meta_path.insert(0, deferring := Deferring())
