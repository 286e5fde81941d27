"""Models with ``fit``: no loss, no gradients, no checkpoints; what they learn is in buffers of any
shape.
"""

import pytest
import torch

from jembench.data.images import Images
from jembench.data.pixels import to_float
from jembench.errors import CheckpointError, Diverged, PluginError, Unavailable
from jembench.interfaces import Split
from jembench.running.building import fit_at_once, make_model
from jembench.running.check import look_ahead
from jembench.store import checkpoint


def test_it_is_fitted_kept_and_loaded(plan, store, loaded, folder, monkeypatch):
    whole = plan("kernels", settings=["data.validation=0"])
    model = loaded(whole).model
    train = whole.fits[0].dataset.make().split("train")
    assert torch.equal(model.images, to_float(train.images, (-1.0, 1.0)))
    assert torch.equal(model.labels, train.labels)
    assert {path.name for path in folder(whole, store).iterdir()} == {
        *("fit.json", "model.safetensors", "sampler.safetensors")
    }
    record = store.read_fit(whole.fits[0].key)
    assert (record.status, record.iteration, record.iteration_seconds) == ("done", 0, ())
    monkeypatch.setattr("jembench.running.fits.fit_at_once", pytest.fail)
    again = loaded(whole).model
    assert torch.equal(again.images, model.images)
    assert torch.equal(again.number, model.number)


def test_what_needs_gradients_is_known_beforehand_and_nothing_else_suffers(
    zoo_of_tests, plan, store, loaded
):
    from jembench.experiment.crossing import make_plan

    suite = plan("kernels").suite.replaced(
        metrics=["accuracy", "pgd", "boundary", "ood:set=uniform,score=grad-norm"]
    )
    whole = make_plan(suite, recipe=str(zoo_of_tests / "tiny.toml"))
    (ready,) = look_ahead(whole).fits.values()
    assert [metric.partition(":")[0] for metric in ready.reasons] == ["pgd"]
    assert "needs gradients, and the model declares that its outputs have none" in str(
        ready.reasons["pgd"]
    )
    evaluation = loaded(whole)
    assert evaluation.predictions.read("logits", "test").shape == (30, 3)
    with pytest.raises(Exception, match="needs gradients"):
        evaluation.predictions.read("grad-norm", "test")


@pytest.mark.parametrize(
    ("goes", "error", "text"),
    [
        (
            "wrong",
            PluginError,
            r"goes=wrong cannot be fitted to 90 images of shades: ValueError: no covariance",
        ),
        ("astray", Diverged, r"left values that are not finite in number"),
        (
            "unstored",
            PluginError,
            r"left nothing in the model's buffers, and nothing else is stored",
        ),
    ],
)
def test_what_goes_wrong_is_said(plan, goes, error, text):
    (fit,) = plan(f"kernels:goes={goes}", settings=["data.validation=0"]).fits
    data = fit.dataset.make()
    with pytest.raises(error, match=text):
        fit_at_once(make_model(fit, data), fit, data)


def test_only_buffers_take_other_shapes(plan):
    (fit,) = plan("kernels").fits
    model = make_model(fit, fit.dataset.make())
    state = {"images": torch.ones(7, 1, 4, 4), "labels": torch.arange(7), "number": torch.ones(())}
    checkpoint.load_weights(model, state)
    assert (model.images.shape, model.labels.tolist()) == ((7, 1, 4, 4), list(range(7)))
    with pytest.raises(CheckpointError, match="labels holds float32 instead of int64"):
        checkpoint.load_weights(model, state | {"labels": torch.ones(7)})


def test_images_that_do_not_fit_in_memory_are_refused_before_training(plan, monkeypatch):
    whole = plan("kernels")
    data = whole.fits[0].dataset.make()
    images, labels = data.split("train")
    parts = Images(images.__getitem__, torch.arange(len(images)), tuple(images.shape[1:]))
    splits = {"train": Split(parts, labels), "test": data.split("test")}
    monkeypatch.setattr(type(data), "split", lambda _, name: splits[name])
    monkeypatch.setenv("JEMBENCH_IMAGES_GIB", "1")
    look_ahead(whole)
    (fit,) = whole.fits
    fit_at_once(make_model(fit, data), fit, data)
    monkeypatch.setenv("JEMBENCH_IMAGES_GIB", "0")
    with pytest.raises(Unavailable, match=r"The model zoo_of_tests:kernels needs all 90 images"):
        look_ahead(whole)
