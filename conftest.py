"""Settings that all tests share, those of the plugins too."""

import configparser
import gc
import importlib.metadata
import os
import random
import shutil
import tempfile
from pathlib import Path

import hypothesis
import pytest
import typechecking

from jembench.catalog.discovery import catalogue
from jembench.interfaces import API

CACHES = {
    "XDG_CACHE_HOME": "cache",
    "XDG_CONFIG_HOME": "config",
    "TORCH_HOME": "torch",
    # kept: a list of fonts takes seconds
    "MPLCONFIGDIR": Path(__file__).parent / ".pytest_cache" / "matplotlib",
    "CUDA_CACHE_PATH": "cuda",
    "TRITON_CACHE_DIR": "triton",
    "RUSTUP_HOME": "rustup",  # pip asks rustc for its version
}
"""Folders of caches of libraries and of jembench, in the folder of this run of the tests.
"""

START = Path(__file__).parent / "tests" / "support" / "start"
"""The folder of the code that every process of a run executes first, ``sitecustomize.py``."""

FOLDER = "JEMBENCH_TESTS_FOLDER"
"""The environment variable by which the processes of one run know that folder."""

# a busy machine is not a bug
hypothesis.settings.register_profile("jembench", deadline=None, max_examples=40)
hypothesis.settings.load_profile("jembench")
os.fsync = lambda descriptor: None  # it takes milliseconds, and guards against power cuts alone


def pytest_sessionstart(session):
    """Refuse to test without the plugins of tox.ini, or with entry points that are older than the
    working tree.
    """
    settings = configparser.ConfigParser(interpolation=None)
    settings.read(Path(__file__).with_name("tox.ini"))
    plugins = settings.get("plugins", "editable", fallback="").split()
    installed = {one.name for one in importlib.metadata.distributions()}
    stale = {Path(name).name for name in plugins if name != "-e"} - installed
    stale |= {one.distribution for one in catalogue().components if one.api != API}
    if stale:
        pytest.exit(
            f"The entry points of {', '.join(sorted(stale))} are out of date or missing. Install "
            f"them again: pip install -e . {' '.join(plugins)}",
            returncode=1,
        )


def pytest_configure(config):
    """No test and no process that it starts sees the user's home and caches: they are empty folders
    of this run.
    """
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        import torch  # here, since the process that hands out tests runs none

        torch.set_num_threads(1)  # tests run side by side; the numbers do not depend on it
    if hasattr(config, "workerinput"):  # of xdist: it inherits them
        return
    folder = Path(tempfile.mkdtemp(prefix="jembench-tests-"))
    os.environ |= {FOLDER: str(folder), "HOME": str(folder / "home")}
    os.environ |= {name: str(folder / part) for name, part in CACHES.items()}
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(START), os.environ.get("PYTHONPATH")])
    )
    (folder / "home").mkdir()


def written_home():
    """Return the paths that tests have written to the home folder, beside the caches."""
    folder = Path(os.environ[FOLDER])
    written = [path.relative_to(folder) for path in (folder / "home").rglob("*")]
    return list(map(str, written))


def pytest_sessionfinish(session):
    """Fail if it is anything."""
    if not hasattr(session.config, "workerinput") and written_home():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter):
    """Say what it is."""
    if written := written_home():
        terminalreporter.write_line(
            f"FAILED The tests have written to the user's home: {', '.join(written[:20])}"
        )


def pytest_unconfigure(config):
    """Remove the folder of this run."""
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ[FOLDER], ignore_errors=True)


def pytest_collection_finish():
    """Exempt all that was imported and collected from garbage collection, which would go through it
    again and again.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """Reset the global generators and the calls that are checked, so that tests do not depend on
    former ones.
    """
    import numpy as np
    import torch

    typechecking.calls.clear()
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - the global generator is what is meant
    torch.default_generator.manual_seed(0)  # not torch.manual_seed, which formats a stack trace
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(0)
