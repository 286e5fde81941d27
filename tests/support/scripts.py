"""Scripts of a folder, imported by their names as Python does that runs one of them."""

import importlib
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def importing(folder):
    """Imports scripts of the folder; they are forgotten afterwards, since other folders have some
    of the same names.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield importlib.import_module
    for name, module in list(sys.modules.items()):
        if (file := getattr(module, "__file__", None)) and Path(file).parent == folder:
            del sys.modules[name]
