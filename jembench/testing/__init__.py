"""The conformance kit: what every component promises, for plugins to test themselves.

In a test of a plugin::

    from jembench.testing import check_model, parametrize

    @parametrize(check_model("my-ebm:hidden=8"))
    def test_my_ebm(check):
        check()

``jembench plugin check my-package`` runs the same checks for every component of a distribution.

Every function here raises SpecError if there is no such component, and PluginError if it cannot be imported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jembench.interfaces import DataSpec
from jembench.testing.checks import Check as Check
from jembench.testing.checks import CheckFailed as CheckFailed
from jembench.testing.checks import DoesNotApply as DoesNotApply
from jembench.testing.checks import Result as Result
from jembench.testing.checks import checks_of
from jembench.testing.checks import expected_failures as expected_failures
from jembench.testing.checks import perform as perform

DIGITS = DataSpec(name="digits", shape=(1, 8, 8), num_classes=10)
"""The default data for checks of models and samplers: the shape of scikit-learn's digits."""


def check_model(spec: str, data: DataSpec = DIGITS) -> list[Check]:
    """The checks of a model: capabilities, shapes, energies, gradients, randomness, saving and loading.

    Args:
        spec: ``my-ebm:hidden=8``, or an import path such as ``my_ebm:build``.
        data: the dataset that the model is made for.
    """
    from jembench.testing.models import ModelSubject

    return checks_of(spec, ModelSubject, data)


def check_sampler(spec: str, data: DataSpec = DIGITS) -> list[Check]:
    """The checks of a sampler: shapes, randomness, what it keeps, and its chains on energies in closed form."""
    from jembench.testing.samplers import SamplerSubject

    return checks_of(spec, SamplerSubject, data)


def check_metric(spec: str) -> list[Check]:
    """The checks of a metric: what it requires, its protocol, its values and arrays, on a model in closed form."""
    from jembench.testing.metrics import MetricSubject

    return checks_of(spec, MetricSubject)


def check_dataset(spec: str) -> list[Check]:
    """The checks of a dataset: its spec, types, ranges, and that it is the same each time."""
    from jembench.testing.datasets import DatasetSubject

    return checks_of(spec, DatasetSubject)


def check_executor(spec: str) -> list[Check]:
    """The checks of an executor: order, slots, endings, workers that die, cancellation. They start fake workers."""
    from jembench.testing.executors import ExecutorSubject

    return checks_of(spec, ExecutorSubject)


def check_tracker(spec: str) -> list[Check]:
    """The checks of a tracker: it takes every event of a run."""
    from jembench.testing.trackers import TrackerSubject

    return checks_of(spec, TrackerSubject)


def check_suite(name: str) -> list[Check]:
    """The checks of an installed suite: it can be read and planned, and everything that it names exists."""
    from jembench.testing import suites

    return suites.checks("suites", name)


def check_recipe(name: str) -> list[Check]:
    """The checks of an installed recipe: it can be read, and no other recipe takes its place."""
    from jembench.testing import suites

    return suites.checks("recipes", name)


def check_reference(name: str) -> list[Check]:
    """The check of an installed file of published numbers: it can be read."""
    from jembench.testing import suites

    return suites.checks("references", name)


def parametrize(checks: Sequence[Check]) -> Callable[[Any], Any]:
    """A pytest test for each check, with the check's name; checks that are declared to fail must fail.

    The test function takes ``check`` and calls it.
    """
    import pytest

    def marks(check: Check) -> list[Any]:
        return [pytest.mark.xfail(reason=check.excuse, strict=True)] if check.excuse else []

    cases = [pytest.param(check, id=check.name, marks=marks(check)) for check in checks]
    return pytest.mark.parametrize("check", cases)
