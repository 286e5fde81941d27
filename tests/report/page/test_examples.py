"""The images of a page: which test images stand in which list, and what is said of them."""

import base64
import dataclasses
import io

import numpy as np
import pytest
from PIL import Image

from jembench.catalog.registry import resolve
from jembench.catalog.spec import stable_hash
from jembench.interfaces import Value
from jembench.report.page.content import Page
from jembench.report.page.examples import galleries
from jembench.report.page.render import render
from jembench.running.evaluation import limited
from jembench.store.store import Store

VALUE = Value(1.0, None, None, 397)
LABELS = resolve("datasets", "digits").make().split("test").labels.numpy()
N = len(LABELS)


@pytest.fixture
def measured(cell, tmp_path):
    """Writes a cell with arrays into a store."""

    def measured(model, metric, arrays, limit=None, **of):
        written = cell(model, metric, **of, accuracy=VALUE)
        written = dataclasses.replace(
            written, id=stable_hash(written.id), provenance={"limit": limit}
        )
        store.write_cell(written, arrays)
        return store.read_cell(written)

    store = Store(tmp_path)
    measured.store = store
    return measured


def classified(wrong, confidence):
    """The arrays of an ECE: these images are given the class above their own, with rising
    confidence.
    """
    predicted = LABELS.copy()
    predicted[list(wrong)] = (predicted[list(wrong)] + 1) % 10
    return {"predicted": predicted, "confidence": confidence, "correct": predicted == LABELS}


def test_each_list_has_the_images_at_its_end_in_order_and_what_each_model_says_of_them(measured):
    rising, falling = np.linspace(0.2, 0.9, N), np.linspace(0.9, 0.2, N)
    cells = [
        measured("jem", "ece", classified([3, 70, 9], rising)),
        measured(
            "jem",
            "energy-gap",
            {"energy-data": np.arange(N) - 100.0, "energy-samples": np.zeros(5)},
        ),
        measured("jem", "ece", classified([5], falling), seed=1),
        measured("baseline", "ece", classified([70, 8], falling)),
        measured("baseline", "ece:scaling=temperature", classified([6], falling)),
    ]
    (gallery,) = galleries(cells, measured.store, {("baseline", "digits"): "Baseline"})
    end = list(range(N - 1, N - 9, -1))
    assert {kind.partition(":")[0]: of_models for kind, of_models in gallery.lists.items()} == {
        "Most wrong": {"jem": [70, 9, 3], "Baseline": [8, 70]},
        "Least confident": {"jem": list(range(8)), "Baseline": end},
        "Most confident": {"jem": end, "Baseline": list(range(8))},
        "Least likely": {"jem": end},
        "Most likely": {"jem": list(range(8))},
    }
    example = gallery.examples[70]
    assert example.label == str(LABELS[70])
    predicted = str((LABELS[70] + 1) % 10)
    assert example.verdicts["jem"] == (predicted, f"{100 * rising[70]:.1f} %", "30.0")
    assert example.verdicts["Baseline"] == (predicted, f"{100 * falling[70]:.1f} %", "")


def test_an_image_is_the_one_that_was_measured_under_the_limit_too(measured):
    energy = np.arange(20.0)
    (gallery,) = galleries(
        [measured("jem", "energy-gap", {"energy-data": energy}, limit=20)], measured.store
    )
    test = limited(resolve("datasets", "digits").make().split("test"), 20)
    assert list(gallery.examples) == [*range(8), *range(12, 20)]
    for index, example in gallery.examples.items():
        picture = Image.open(io.BytesIO(base64.b64decode(example.image.partition("base64,")[2])))
        assert (np.asarray(picture)[::8, ::8, 0] == test.images[index, 0].numpy()).all()
        assert example.label == str(int(test.labels[index]))


def test_the_page_has_each_image_once(measured):
    cells = [
        measured(model, "energy-gap", {"energy-data": np.arange(N) * 1.0}) for model in ("a", "b")
    ]
    text = render(Page(title="Images", tables=[], images=galleries(cells, measured.store)))
    assert text.count("data:image/png") == 16
    assert text.count("<use ") == 32
    assert "Least likely" in text
    assert "Most wrong" not in text


def test_many_models_have_fewer_images_each(measured, monkeypatch):
    # three of each of 2 x 10 lists
    monkeypatch.setattr("jembench.report.page.examples._PIXELS", 64 * 2 * 10 * 3)
    cells = [
        measured(f"m{n}", "energy-gap", {"energy-data": np.arange(N) * 1.0}) for n in range(10)
    ]
    (gallery,) = galleries(cells, measured.store)
    assert {
        len(chosen) for of_models in gallery.lists.values() for chosen in of_models.values()
    } == {3}


@pytest.mark.parametrize("of", [{"dataset": "cifar10"}, {"dataset": "gone:a=1"}, {}])
def test_images_that_are_not_there_or_others_are_told_of_in_one_sentence(
    of, measured, monkeypatch, tmp_path
):
    monkeypatch.setenv("JEMBENCH_DATA", str(tmp_path / "none"))
    cells = [measured("jem", "energy-gap", {"energy-data": np.zeros(N - 1)}, **of)]
    text = render(Page(title="Images", tables=[], images=galleries(cells, measured.store)))
    assert "are not shown: they are not on the machine" in text
    assert "<use " not in text


def test_a_store_chooses_no_code(measured, monkeypatch, tmp_path):
    (tmp_path / "evil.py").write_text("raise SystemExit")
    monkeypatch.syspath_prepend(tmp_path)
    cells = [measured("jem", "energy-gap", {"energy-data": np.zeros(N)}, dataset="evil:data")]
    (gallery,) = galleries(cells, measured.store)
    assert not gallery.examples
