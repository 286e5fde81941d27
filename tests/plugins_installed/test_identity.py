"""An installed plugin is the same thing however Python finds it, so that a fit is found again from
any environment.
"""

import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

PLUGIN = Path(__file__).parents[2] / "plugins" / "jembench-jem"
SITES = [path for path in sys.path if Path(path).name == "site-packages"]
FIT_ID = """
from jembench.experiment.plan import plan_fit
import sys
print(plan_fit('jem', 'digits').key.id, 'torch' in sys.modules)
"""


def is_copied():
    return all(
        any(
            one.files
            and not json.loads(one.read_text("direct_url.json") or "{}")
            .get("dir_info", {})
            .get("editable")
            for one in importlib.metadata.distributions(name=name)
        )
        for name in ("jembench", "jembench-jem")
    )


pytestmark = pytest.mark.skipif(
    not (is_copied() and importlib.util.find_spec("pip") and importlib.util.find_spec("hatchling")),
    reason="jembench-jem must be installed, not with -e, beside pip and hatchling: tox -e plugins "
    "does that",
)


def fit_id(python, path=""):
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTHON")
    }
    done = subprocess.run(
        [python, "-c", FIT_ID],
        cwd="/",
        env=environment | {"PYTHONPATH": str(path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found, torch = done.stdout.split()
    assert torch == "False"
    return found


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """The Python of a virtual environment in which nothing is installed."""
    folder = tmp_path_factory.mktemp("bare") / "venv"
    venv.create(folder)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def expected():
    return fit_id(sys.executable)


def test_through_pythonpath(bare, expected):
    assert fit_id(bare, os.pathsep.join(SITES)) == expected


def test_through_a_pth_file(bare, expected):
    (site,) = bare.parents[1].glob("lib/python*/site-packages")
    layer = site / "layer.pth"
    layer.write_text("\n".join(SITES))
    assert fit_id(bare) == expected
    layer.unlink()


def test_installed_into_a_folder(expected, tmp_path):
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    options = ["--no-index", "--no-deps", "--no-build-isolation", "--target", tmp_path / "site"]
    subprocess.run([*pip, *options, PLUGIN], check=True)
    assert fit_id(sys.executable, tmp_path / "site") == expected


def test_a_source_tree_has_no_version(expected):
    assert fit_id(sys.executable, PLUGIN) != expected
