"""Metrics of images that are read in parts equal those of tensors, or say why they do not apply."""

import dataclasses

import numpy as np
import pytest
import torch

from jembench.catalog import registry
from jembench.data.datasets import LazyDataset
from jembench.data.images import Images
from jembench.interfaces import Split
from jembench.metrics import features
from jembench.running.caches import FeatureBank
from jembench.running.measure import measure
from jembench.store.store import Store
from jembench.testing import stage

IN_PARTS = [
    "accuracy",
    "chain-drift:at=1,images=20,resamples=0",
    "fid:resamples=0",
    "log-density:resamples=0",
    "memorisation:resamples=0",
    "neighbours:resamples=0",
    "ood:set=phases",
    "ood:set=uniform,data_noise=0.1",
    "shift:set=corrupted:by=fog",
]
WHOLE = ["ood:set=interp,score=refinement", "ood:set=corrupted"]


@pytest.fixture(scope="module")
def evaluations(tmp_path_factory):
    """A trained model with images in memory, and with images that are read in parts."""
    trained = stage.trained()
    splits = {name: trained.dataset.split(name) for name in ("train", "test")}

    def lazy(name):
        images, labels = splits[name]
        rows = torch.arange(len(images))
        return Split(Images(images.__getitem__, rows, tuple(images.shape[1:])), labels)

    made = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JEMBENCH_IMAGES_GIB", "0")
        patch.setitem(features.RECIPE, "iterations", 2)
        for load in (splits.__getitem__, lazy):
            dataset = LazyDataset(trained.spec, load)
            store = Store(tmp_path_factory.mktemp("store"))
            bank = FeatureBank(dataset, store, trained.device)
            fit = dataclasses.replace(trained, dataset=dataset, bank=bank, held=None)
            made.append(dataclasses.replace(fit, parts={}, readings={}, drawn={}).evaluation())
        yield made


@pytest.mark.parametrize("spec", IN_PARTS)
def test_values_and_arrays_are_the_same(evaluations, spec):
    metric = registry.resolve("metrics", spec).make()
    (expected, arrays), (outcome, in_parts) = [measure(metric, each) for each in evaluations]
    assert isinstance(evaluations[1].data.part("test").images, Images)
    assert outcome.status == "ok", outcome.traceback or outcome.reason
    assert (outcome.values, outcome.protocol) == (expected.values, expected.protocol)
    assert arrays.keys() == in_parts.keys()
    for name, values in arrays.items():
        np.testing.assert_array_equal(in_parts[name], values, strict=True)


@pytest.mark.parametrize("spec", WHOLE)
def test_what_needs_all_images_does_not_apply(evaluations, spec):
    metric = registry.resolve("metrics", spec).make()
    expected, outcome = [measure(metric, each)[0] for each in evaluations]
    assert (expected.status, outcome.status) == ("ok", "na")
    assert "needs all 100 images in memory" in outcome.reason
