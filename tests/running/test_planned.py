"""Needs of metrics, checked before training: the reasons why a fit cannot give them."""

import dataclasses

import pytest
import torch

from jembench.data.images import Images
from jembench.errors import NotApplicable, SpecError, Unavailable
from jembench.interfaces import DataSpec, Source, Split
from jembench.metrics.ood_scores import refinement
from jembench.models.energies import LogitModel
from jembench.models.objective import PlainClassifier
from jembench.running.planned import PlannedFit
from jembench.store.layout import FRESH_SAMPLES

SPEC = DataSpec(name="toy", shape=(1, 4, 4), num_classes=10)
LABELS = torch.zeros(40, dtype=torch.int64)


class Toy:
    spec = SPEC

    def __init__(self, labels):
        self.labels = labels

    def split(self, name):
        return Split(torch.zeros(40, 1, 4, 4, dtype=torch.uint8), self.labels)


class Density(torch.nn.Module):
    def energy(self, x, y=None): ...


class Resized(Density):
    lacks = dict.fromkeys(("log_prob", "samples"), "images are resized")


def planned(model=None, labels=LABELS, **known):
    data = Toy(labels)
    model = model or LogitModel(torch.nn.Flatten())
    return PlannedFit(dataset=data, test=data.split("test"), fetching=False, model=model, **known)


def test_a_sampler_of_a_metric_is_given_the_training_images():
    starts = "sgld:start=class-gaussian"
    with pytest.raises(SpecError, match="no training image of toy is of class 1, 2"):
        planned().samples(Source(sampler=starts))
    labels = torch.arange(40) % 10
    assert planned(labels=labels).samples(Source(sampler=starts)) == FRESH_SAMPLES


@pytest.mark.parametrize(
    ("fit", "needs", "reason"),
    [
        (
            planned(),
            {"samples"},
            r"^needs samples, which the model does not give; --sampler sgld:steps=100 draws "
            "samples from -logsumexp of its logits, as JEM reads a classifier$",
        ),
        (
            planned(Density()),
            {"samples"},
            "--sampler sgld:steps=100 draws samples from its energy$",
        ),
        (
            planned(PlainClassifier(torch.nn.Flatten()), pretrained=True),
            {"samples"},
            "from -logsumexp of its logits",
        ),
        (
            planned(Resized()),
            {"log_prob", "samples"},
            r"^needs log_prob and samples, which the model does not give: images are resized; --",
        ),
        (
            planned(PlainClassifier(torch.nn.Flatten())),
            {"samples"},
            r"^needs samples, which the model does not give$",
        ),
        (
            planned(Density()),
            {"log_prob", "energy"},
            "^needs log_prob, which the model does not give$",
        ),
        (planned(torch.nn.Flatten()), {"logits"}, "^needs logits, which the model does not give$"),
        (planned(labels=None), {"logits", "labels"}, "The dataset toy has no labels"),
        (planned(), {"validation"}, "trained without validation images"),
        (planned(pretrained=True), {"validation"}, "its validation images are unknown"),
        (planned(), {"chains"}, "chain"),
        (planned(), {"buffer"}, "only a replay buffer"),
        (planned(pretrained=True), {"training"}, "nothing is known of its training"),
    ],
)
def test_what_is_missing_is_the_reason(fit, needs, reason):
    with pytest.raises(NotApplicable, match=reason):
        fit.require(frozenset(needs))


def test_answers_without_gradients_are_refused():
    model = LogitModel(torch.nn.Flatten())
    model.differentiable = False
    with pytest.raises(NotApplicable, match="needs gradients"):
        planned(model).require(frozenset({"gradients"}))


def test_images_that_are_read_in_parts_do_not_meet_the_need_of_all_in_memory(monkeypatch):
    monkeypatch.setenv("JEMBENCH_IMAGES_GIB", "0")
    fit = planned()
    rows = torch.arange(40)
    lazy = Split(Images(fit.test.images.__getitem__, rows, SPEC.shape), LABELS)
    with pytest.raises(Unavailable, match="needs all 40 images in memory"):
        dataclasses.replace(fit, test=lazy).require(frozenset({"memory"}))
    assert "memory" in refinement().requires


@pytest.mark.parametrize(
    "needs", [set(), {"logits", "labels", "training"}, {"validation"}, {"memory"}]
)
def test_what_a_fit_gives_is_not_refused(needs):
    planned(validation=5).require(frozenset(needs))
