"""The guides to models of one's own, followed in an empty folder, where pip can install what they
write.
"""

import importlib.util
import json
import re
import sys
from pathlib import Path

import pages
import pytest

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"

pytestmark = pytest.mark.skipif(
    not (importlib.util.find_spec("pip") and importlib.util.find_spec("hatchling")),
    reason="a distribution is built and installed here with pip and hatchling: tox -e plugins has "
    "them",
)


def follow(page, folders, programs):
    """Follow a page; gives the folder and what each command printed. pip neither fetches nor
    changes anything here.
    """
    site = folders.mktemp("site")

    def offline(line):
        options = f"--quiet --no-index --no-deps --no-build-isolation --target {site}"
        return re.sub(
            r"^pip install -e (\S+)$", rf"{sys.executable} -m pip install {options} ./\1", line
        )

    folder = folders.mktemp(page)
    page_file = HOW_TO / f"{page}.md"
    return folder, pages.follow(page_file, folder, programs, offline, PYTHONPATH=str(site))


@pytest.fixture(scope="module")
def own_model(tmp_path_factory, programs):
    return follow("own-model", tmp_path_factory, programs)


def test_each_run_has_a_row_for_each_model_that_it_names(own_model):
    assert pages.runs_without_a_row(own_model[1]) == []


def test_the_checks_find_nothing(own_model):
    checks = [
        output
        for command, output in own_model[1].items()
        if command.startswith("jembench plugin check")
    ]
    assert len(checks) == 2
    for output in checks:
        assert re.search(r"\d+ passed", output)
        assert "failed" not in output


def test_what_was_installed_is_on_record(own_model):
    plugins = set()
    for path in (own_model[0] / "runs" / "cells").iterdir():
        plugins |= set(json.loads(path.read_text())["provenance"]["plugins"])
    assert "my-ebm 0.1.0 [my-ebm = my_ebm:build]" in plugins
    assert any(plugin.startswith("sketch:build (sketch.py, sha256:") for plugin in plugins)
    assert any(plugin.startswith("sketch.py sha256:") for plugin in plugins)


@pytest.mark.parametrize("kind", ["model", "sampler", "metric", "dataset", "suite"])
def test_every_kind_was_written(kind, own_model):
    assert (
        own_model[0] / ("my-ebm" if kind == "model" else f"my-{kind}") / "pyproject.toml"
    ).exists()
