"""The conformance kit: checks of what components promise, for tests of plugins.

Components are models, samplers, metrics and datasets.

In a test of a plugin::

    from jembench.testing import check_model, parametrize

    @parametrize(check_model("my-ebm:hidden=8"))
    def test_my_ebm(check):
        check()

``jembench plugin check my-package`` runs the same checks for every component of a distribution.

Every ``check_`` function raises SpecError if there is no such component, and PluginError if it
cannot be imported.
"""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from jembench.interfaces import DataSpec
from jembench.testing.checks import DIGITS, Check, checks_of

__all__ = ["DIGITS", "check_dataset", "check_metric", "check_model", "check_sampler", "parametrize"]


def check_model(spec: str, data: DataSpec = DIGITS) -> list[Check]:
    """Return the checks of a model.

    The checks concern shapes, energies, gradients, randomness, training, saving and loading.

    Args:
        spec: ``my-ebm:hidden=8``, or an import path such as ``my_ebm:build``.
        data: the description of the images that the model is made for.
    """
    from jembench.testing.models import ModelSubject

    return checks_of(spec, ModelSubject, data)


def check_sampler(spec: str, data: DataSpec = DIGITS) -> list[Check]:
    """Return the checks of a sampler.

    The checks concern shapes, randomness, the buffer, and chains on energies in closed form.
    """
    from jembench.testing.samplers import SamplerSubject

    return checks_of(spec, SamplerSubject, data)


def check_metric(spec: str) -> list[Check]:
    """Return the checks of a metric.

    The checks concern requirements, protocol, values and arrays, on a model in closed form.
    """
    from jembench.testing.metrics import MetricSubject

    return checks_of(spec, MetricSubject)


def check_dataset(spec: str) -> list[Check]:
    """Return the checks of a dataset: its spec, types, ranges and determinism."""
    from jembench.testing.datasets import DatasetSubject

    return checks_of(spec, DatasetSubject)


def parametrize(checks: Sequence[Check]) -> Callable[[Any], Any]:
    """Return a decorator that makes a pytest test of each check.

    The test function takes ``check`` and calls it, and calls ``pytest.xfail`` for a check that
    cannot pass.
    """
    import pytest

    return pytest.mark.parametrize("check", checks, ids=attrgetter("name"))
