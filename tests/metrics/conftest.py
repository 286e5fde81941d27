"""Evaluations of tests, see :mod:`fake_evaluation`."""

from __future__ import annotations

import pytest
from fake_evaluation import TOY, FakeDataset, FakeEvaluation, Fakes, random_images

from jembench.interfaces import Split


@pytest.fixture
def fake():
    """The classes of an evaluation, and a maker of random images."""
    return Fakes


@pytest.fixture
def generation():
    """60 generated images, somewhat darker than the 90 and 40 real ones."""
    splits = {"train": Split(random_images(90, 1), None), "test": Split(random_images(40, 2), None)}
    return FakeEvaluation(sampled=random_images(60, 3, high=200), dataset=FakeDataset(TOY, splits))
