"""Every page of the site is followed: its commands and snippets run, at a small size."""

import json
from pathlib import Path

import pages
import pytest

DOCS = Path(__file__).parents[1] / "docs"
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if pages.steps(page)]
OF_PAGE = {
    # its recipe has a least number of iterations
    "own-data": {"JEMBENCH_SET": "epochs=0.1 least_iterations=0"},
    "fine-tune": {"JEMBENCH_SET": "epochs=0.1 least_iterations=0"},
    # `check` has no --set, so that the file alone says how long is trained
    "gate": {"JEMBENCH_SET": ""},
    # other tests draw every figure
    "experiment": {"JEMBENCH_FIGURES_ONLY": "joint,reliability"},
    # three models are attacked
    "speedrun": {"JEMBENCH_SET": "epochs=0.1 pgd.steps=2 pgd.restarts=1"},
    # a site shows whole test sets alone
    "share": dict.fromkeys(("JEMBENCH_RUN_LIMIT", "JEMBENCH_REPORT_LIMIT"), ""),
}
"""Environment variables for the commands of a page."""


def test_the_pages_are_found():
    assert {"how-to/experiment.md"} <= {page.relative_to(DOCS).as_posix() for page in PAGES}


def accuracies(store):
    """The measured accuracies of a store, by the name of the model."""
    cells = [json.loads(path.read_text()) for path in (store / "cells").iterdir()]
    return {
        cell["fit"]["model"].partition(":")[0]: cell["outcome"]["values"]["accuracy"]
        for cell in cells
        if cell["metric"] == "accuracy" and cell["outcome"]["status"] == "ok"
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_can_be_followed(page, tmp_path, programs):
    if any("pip install" in step.text for step in pages.steps(page)):
        pytest.skip("pip installs what the page writes: tox -e plugins follows it")
    if page.stem == "tune":
        pytest.importorskip("optuna", reason="optuna is not installed")
    printed = pages.follow(page, tmp_path, programs, **OF_PAGE.get(page.stem, {}))
    assert pages.runs_without_a_row(printed) == []
    if page.stem == "experiment":
        assert (
            "Claims · Two models on digits · dataset digits"
            in printed["jembench report paper.toml --claims"]
        )
    if page.stem == "import":
        shares = accuracies(tmp_path / "runs")
        assert shares["own"] == shares["baseline"]
