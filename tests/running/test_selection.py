"""A metric of the recipe selects the checkpoint and the length of chains, on validation images."""

import pytest
import torch

from jembench.catalog import registry
from jembench.errors import NotApplicable, SpecError
from jembench.interfaces import Source
from jembench.running.building import make_model, make_trainer
from jembench.running.caches import FeatureBank
from jembench.running.check import look_ahead
from jembench.running.selection import selector
from jembench.training.choice import SelectedWeights

FRESH = "class-samples:source=fresh,images=30"


@pytest.fixture
def selecting(plan, store):
    """From the name of a model and settings to a trainer, and the function that measures it."""

    def selecting(model, *settings):
        (fit,) = plan(model, settings=settings).fits
        bank = FeatureBank(fit.dataset.make(), store, torch.device("cpu"))
        trainer = make_trainer(fit, bank.dataset, bank.device, make_model(fit, bank.dataset))
        return trainer, selector(fit, bank, trainer)

    return selecting


def test_a_metric_is_measured_on_validation_images_with_averaged_weights(selecting):
    trainer, select = selecting("classifier", "selection.metric=nll", "optimizer.average=0.5")
    trainer.window(4)
    before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    assert select() == SelectedWeights("nll", pytest.approx(trainer.validate()["nll"]), "lower")
    assert all(
        torch.equal(value, before[name]) for name, value in trainer.model.state_dict().items()
    )


def test_the_selected_length_of_chains_is_that_of_the_images_of_the_fit(plan, store, loaded):
    whole = plan(
        "jem",
        settings=[f"selection.metric={FRESH}", "selection.steps=[1,9]", "chains.conditional=true"],
    )
    evaluation = loaded(whole)
    selected = store.read_fit(whole.fits[0].key).provenance["selected"]
    agreement = {}
    for steps in (1, 9):
        metric = registry.resolve("metrics", f"{FRESH},steps={steps}").make()
        agreement[steps] = metric.compute(evaluation).values["agreement-fresh"].value
    steps = selected["steps"]
    assert agreement[steps] == selected["value"] == max(agreement.values())
    own = evaluation.samples(Source(chains="fresh", images=30))
    assert own.source == "chains:steps=selected"
    assert torch.equal(
        own.images, evaluation.samples(Source(chains="fresh", images=30, steps=steps)).images
    )


def test_a_metric_that_cannot_be_computed_is_refused_before_training(plan):
    with pytest.raises(NotApplicable, match="needs samples"):
        look_ahead(plan("classifier", settings=["selection.metric=class-samples"]))
    with pytest.raises(SpecError, match="There is no option of nll named 'steps'"):
        look_ahead(plan("classifier", settings=["selection.metric=nll", "selection.steps=[1]"]))


def test_a_metric_without_a_direction_selects_nothing(selecting):
    _, select = selecting("jem", f"selection.metric={FRESH}")
    with pytest.raises(
        SpecError, match="class-samples, but neither high nor low values of it are better"
    ):
        select()
