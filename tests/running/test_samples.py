"""The images of a trained model, and the picture of them."""

import pytest
import torch

from jembench.errors import SpecError
from jembench.running import fit_samples, fits
from jembench.running.caches import FeatureBank
from jembench.running.events import Events

CPU = torch.device("cpu")


def evaluation_of(plan, store, display=None):
    (fit,) = plan.fits
    bank = FeatureBank(fit.dataset.make(), store, CPU)
    return fit, fits.FitWork(
        fit=fit, bank=bank, store=store, report=Events(display).of(fit.key)
    ).load_or_train().evaluation()


def test_samples_of_chains_and_of_the_buffer(plan, store):
    fit, evaluation = evaluation_of(plan("jem"), store)
    assert fit_samples.samples_of(evaluation, fit, None).source == "buffer"
    assert fit_samples.samples_of(evaluation, fit, 3).source == "chains:steps=3"


@pytest.mark.parametrize(
    ("model", "steps", "text"),
    [
        ("classifier", None, "zoo_of_tests:classifier generates no images: it is trained without chains."),
        ("classifier", 3, "zoo_of_tests:classifier generates no images: it is trained without chains."),
        ("painter", 3, "zoo_of_tests:painter draws its images directly, without a chain. Leave --steps out."),
    ],
)
def test_samples_that_a_model_does_not_have(plan, store, model, steps, text):
    fit, evaluation = evaluation_of(plan(model), store)
    with pytest.raises(SpecError) as caught:
        fit_samples.samples_of(evaluation, fit, steps)
    assert str(caught.value).startswith(text)


def test_a_picture_is_of_the_classes_that_were_drawn_for_or_that_the_model_sees(plan, store, tmp_path, monkeypatch):
    rows = []
    monkeypatch.setattr(fit_samples.grid, "write_png", lambda path, images, chosen, option: rows.append(chosen))
    _, evaluation = evaluation_of(plan("factored"), store)
    kept = evaluation.samples()
    fit_samples.write_samples(evaluation, kept, tmp_path / "a.png", columns=4)
    shown = rows[-1]
    assert shown.shape == (3, 4)
    for number, row in enumerate(shown):
        assert (kept.labels[row[row >= 0]] == number).all()
    fit_samples.write_samples(evaluation, kept._replace(labels=None), tmp_path / "b.png", columns=4)
    seen = evaluation.predictions.read("logits", kept.images).argmax(1)
    for number, row in enumerate(rows[-1]):
        assert (seen[row[row >= 0]] == number).all()
