"""Figures of test images: which stand in which panel, and what is said where they are not there."""

import dataclasses

import numpy as np
import pytest

from jembench.catalog.registry import resolve
from jembench.catalog.spec import stable_hash
from jembench.data.grid import sheet
from jembench.errors import JembenchError
from jembench.report.figures import planning
from jembench.report.layout import Report
from jembench.running.evaluation import limited
from jembench.store.store import Store

DIGITS = resolve("datasets", "digits").make().split("test")
LABELS = DIGITS.labels.numpy()
N = len(LABELS)


@pytest.fixture
def measured(cell, tmp_path):
    """Writes a cell with arrays into a store."""

    def measured(model, metric, arrays, limit=None, **of):
        written = cell(metric, model=model, **of)
        written = dataclasses.replace(
            written, id=stable_hash(written.id), provenance={"limit": limit}
        )
        store.write_cell(written, arrays)
        return store.read_cell(written)

    store = Store(tmp_path)
    measured.store = store
    return measured


def drawn(measured, *cells):
    """The drawings of test images, by the names of their files."""
    figures = planning.figures(Report(cells), measured.store, pytest.fail)
    return {figure.stem: figure.draw for figure in figures if figure.stem.startswith("examples")}


def indices(drawing):
    panels = {}
    for row in drawing.rows:
        panels.setdefault(row["panel"], []).append(row["index"])
    return panels


def classified(wrong, confidence):
    """The arrays of an ECE: these images are given the class above their own, with rising
    confidence.
    """
    predicted = LABELS.copy()
    predicted[list(wrong)] = (predicted[list(wrong)] + 1) % 10
    return {"predicted": predicted, "confidence": confidence, "correct": predicted == LABELS}


def test_each_panel_has_the_images_at_its_end_in_order(measured):
    rising, falling = np.linspace(0.2, 0.9, N), np.linspace(0.9, 0.2, N)
    energies = {"energy-data": np.arange(N) - 100.0, "energy-samples": np.zeros(5)}
    figures = drawn(
        measured,
        measured("jem", "ece", classified([3, 70, 9], rising)),
        measured("jem", "energy-gap", energies),
        measured("baseline", "ece", classified([70, 8], falling)),
        measured("baseline", "ece:scaling=temperature", classified([6], falling)),
    )
    start, end = list(range(8)), list(range(N - 1, N - 9, -1))
    assert figures.keys() == {"examples-digits-jem-s0", "examples-digits-baseline-s0"}
    jem = figures["examples-digits-jem-s0"]()
    assert indices(jem) == {
        "most wrong": [70, 9, 3],
        "least confident": start,
        "most confident": end,
        "least likely": end,
        "most likely": start,
    }
    wrong, least_likely = jem.rows[0], jem.rows[3 + 8 + 8]
    assert (wrong["class"], wrong["score"]) == (LABELS[70], rising[70])
    assert (least_likely["index"], least_likely["score"]) == (N - 1, 100.0 - (N - 1))
    assert indices(figures["examples-digits-baseline-s0"]()) == {
        "most wrong": [8, 70],
        "least confident": end,
        "most confident": start,
    }


def test_a_panel_without_images_is_not_drawn(measured):
    rising = np.linspace(0.2, 0.9, N)
    (draw,) = drawn(measured, measured("jem", "ece", classified([], rising))).values()
    assert indices(draw()).keys() == {"least confident", "most confident"}


def test_an_image_is_the_one_that_was_measured_under_the_limit_too(measured):
    cell = measured("jem", "energy-gap", {"energy-data": np.arange(20.0)}, limit=20)
    (draw,) = drawn(measured, cell).values()
    figure, rows = draw()
    assert [row["index"] for row in rows] == [*range(19, 11, -1), *range(8)]
    test = limited(DIGITS, 20)
    assert [row["class"] for row in rows] == test.labels[[row["index"] for row in rows]].tolist()
    likely = sheet(test.images.numpy(), np.arange(8)[None])
    assert (figure.axes[1].images[0].get_array() == likely).all()


@pytest.mark.parametrize(
    ("of", "problem"),
    [
        ({"dataset": "cifar10"}, "CIFAR-10|cifar10"),
        ({"dataset": "gone:a=1"}, "no dataset named 'gone'"),
        ({}, "another number of test images"),
    ],
)
def test_images_that_are_not_there_are_an_error_of_the_drawing(
    of, problem, measured, monkeypatch, tmp_path
):
    monkeypatch.setenv("JEMBENCH_DATA", str(tmp_path / "none"))
    cell = measured("jem", "energy-gap", {"energy-data": np.zeros(N - 1)}, **of)
    (draw,) = drawn(measured, cell).values()
    with pytest.raises(JembenchError, match=problem):
        draw()


def test_a_store_chooses_no_code(measured, monkeypatch, tmp_path):
    (tmp_path / "evil.py").write_text("raise SystemExit")
    monkeypatch.syspath_prepend(tmp_path)
    cell = measured("jem", "energy-gap", {"energy-data": np.zeros(N)}, dataset="evil:data")
    (draw,) = drawn(measured, cell).values()
    with pytest.raises(JembenchError, match="evil:data"):
        draw()
