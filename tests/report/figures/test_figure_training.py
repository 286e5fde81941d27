"""Figures of trainings: the curves of their histories, and the chains that they keep."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from jembench.drawing import BLUE, VERMILLION
from jembench.drawing import styled as in_our_style
from jembench.experiment.names import DisplayNames
from jembench.report.figures import training
from jembench.store import checkpoint


@pytest.fixture(autouse=True)
def styled():
    with in_our_style():
        yield


HISTORIES = {
    ("baseline", 0): "iteration,seconds,attempt,loss\n20,9,0,1.0\n40,9,0,0.001\n60,9,0,0.001\n",
    (
        "jem",
        0,
    ): "iteration,attempt,loss,energy_data,energy_samples\n20,0,2.0,-3,-2\n40,1,1.0,-4,-9000\n",
    ("jem", 1): "iteration,attempt,loss,energy_data,energy_samples\n20,0,3.0,-3,-4\n",
}


@pytest.fixture
def curves(cell, tmp_path):
    """Training curves of a baseline and of two seeds of JEM, whose first seed the guard has
    repaired.
    """
    fits = [cell("accuracy", model=model, seed=seed).fit for model, seed in HISTORIES]
    for (model, seed), history in HISTORIES.items():
        (tmp_path / f"{model}{seed}").write_text(history)
    place = SimpleNamespace(history=lambda fit: tmp_path / f"{fit.model}{fit.seed}")
    names = DisplayNames(models={("jem", "digits"): "ours"})
    planned = training.curves_of(fits, place, pytest.fail, names)
    return [one.draw() for one in planned]


def test_curves_of_all_models_are_one_figure_for_each_quantity(curves):
    loss, energy, _ = curves
    assert [one.figure.axes[0].get_ylabel() for one in curves] == [
        "loss",
        "mean E(x), nats",
        "seconds per iteration",
    ]
    assert [(row["model"], row["seed"], row["loss"]) for row in loss.rows] == [
        *(("baseline", 0, value) for value in (1.0, 0.001, 0.001)),
        *(("ours", 0, value) for value in (2.0, 1.0)),
        ("ours", 1, 3.0),
    ]
    assert {row["model"] for row in energy.rows} == {"ours"}
    assert (loss.figure.axes[0].get_yscale(), energy.figure.axes[0].get_yscale()) == (
        "log",
        "symlog",
    )
    legends = [[text.get_text() for text in one.figure.legends[0].get_texts()] for one in curves]
    assert legends == [["baseline", "ours"], ["ours", "data", "samples"], ["baseline"]]
    axis = energy.figure.axes[0].yaxis
    places = sorted(axis.get_transform().transform(axis.get_majorticklocs()))
    assert min(np.diff(places)) > 0.9  # decades: the ticks beside 0 are as far apart as the others


def test_a_model_has_one_colour_in_all_its_curves_and_a_line_where_the_guard_intervened(curves):
    def drawn(axes, colour):
        return [
            (*line.get_xdata(),)
            for line in axes.lines
            if line.get_color() == colour and len(line.get_xdata())
        ]

    loss, energy, _ = (one.figure.axes[0] for one in curves)
    assert drawn(loss, BLUE) == [(20, 40, 60)]
    assert drawn(loss, VERMILLION) == [(20,), (40,), (40, 40), (20,)]
    assert drawn(energy, VERMILLION) == [(20,), (20,), (40,), (40,), (40, 40), (20,), (20,)]


def test_a_fit_without_a_history_has_no_curves(cell, tmp_path):
    place = SimpleNamespace(history=lambda fit: tmp_path / "none.csv")
    assert list(training.curves_of([cell("accuracy").fit], place, pytest.fail)) == []


def test_the_kept_chains_are_drawn_epoch_by_epoch(cell, tmp_path):
    images = torch.arange(2 * 5 * 64, dtype=torch.uint8).reshape(2, 5, 1, 8, 8)
    for number, iteration in enumerate((40, 50), start=4):
        parts = {
            "images": images[number - 4],
            "labels": torch.arange(5),
            "ages": number * torch.ones(5, dtype=int),
        }
        checkpoint.write(
            tmp_path / f"buffer-{number}.safetensors", parts, age=iteration, placed=True
        )
    fits = [cell("accuracy").fit]
    (planned,) = training.buffers_of(fits, SimpleNamespace(fit_folder=lambda fit: tmp_path))
    assert (
        list(training.buffers_of(fits, SimpleNamespace(fit_folder=lambda fit: tmp_path / "none")))
        == []
    )
    assert planned.stem == "chains-digits-jem-s0"
    drawing = planned.draw()
    panels = [axes.get_title(loc="left") for axes in drawing.figure.axes]
    assert panels == ["iteration 40", "iteration 50"]
    places = [
        (row["panel"], row["row"], row["column"], row["class"], row["score"])
        for row in drawing.rows
    ]
    assert places == [
        (panel, slot // 3, slot % 3, slot, number)
        for number, panel in enumerate(panels, 4)
        for slot in range(5)
    ]
    sheets = [axes.images[0].get_array() for axes in drawing.figure.axes]
    assert [int(sheet[0, 0, 0]) for sheet in sheets] == images[:, 0, 0, 0, 0].tolist()


@pytest.mark.parametrize(
    ("energies", "points"),
    [([1.5], [True]), ([1.5, np.nan, 2.0, 3.0], [True, False, False, False])],
)
def test_a_window_without_finite_neighbours_has_a_point(energies, points):
    history = [
        {"iteration": number, "attempt": 0, "energy_data": value}
        for number, value in enumerate(energies)
    ]
    drawing_of = training.curves(
        "title", "energy", {"energy_data": "data"}, [("jem", 0, history)], {"jem": "#000000"}
    )
    (line,) = [line for line in drawing_of.figure.axes[0].lines if len(line.get_xdata())]
    assert line.get_xydata()[:, 0].tolist() == list(range(len(energies)))
    assert line.get_marker() == "o"
    assert line.get_markevery() == points


def test_a_quantity_that_is_never_finite_has_no_figure(cell, tmp_path):
    (tmp_path / "history.csv").write_text(
        "iteration,attempt,energy_data,loss\n20,0,nan,1.5\n40,0,inf,2.5\n"
    )
    place = SimpleNamespace(history=lambda fit: tmp_path / "history.csv")
    planned = training.curves_of([cell("accuracy").fit], place, pytest.fail)
    assert [one.stem for one in planned] == ["training-loss-digits-jem-s0"]
