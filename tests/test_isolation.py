"""The tests write nothing outside temporary folders."""

import os
import subprocess
import sys
from pathlib import Path

import matplotlib
import torch

from jembench.files import cache_folder, data_folder

PROBE = """
from pathlib import Path

def test_that_writes_to_the_home_folder():
    Path.home().joinpath(".left").write_text("")
"""


def test_every_cache_is_in_the_folder_of_this_run():
    caches = [cache_folder(), data_folder(), torch.hub.get_dir(), matplotlib.get_cachedir(), matplotlib.get_configdir()]
    assert all(Path(path).is_relative_to(os.environ["JEMBENCH_TESTS_FOLDER"]) for path in [*caches, Path.home()])


def test_a_run_that_writes_to_the_home_folder_fails(tmp_path):
    (tmp_path / "test_probe.py").write_text(PROBE)
    conftest = Path(__file__).parents[1] / "conftest.py"
    (tmp_path / "conftest.py").write_text(conftest.read_text())
    arguments = ["-q", "-p", "no:cacheprovider", "-c", os.devnull, str(tmp_path)]
    support = {**os.environ, "PYTHONPATH": str(Path(__file__).parent / "support")}  # what the conftest imports
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments],
        cwd=tmp_path,
        env=support,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "The tests have written to the user's home: home/.left" in done.stdout + done.stderr
    assert "1 passed" in done.stdout
