"""The conformance kit: what every component must hold to, for plugins to test themselves by.

In a test of a plugin::

    from jembench.testing import check_model, parametrize

    @parametrize(check_model("my-ebm:hidden=8"))
    def test_my_ebm(check):
        check()

``jembench plugin check my-package`` runs the same for every component of a distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jembench.interfaces import DataSpec
from jembench.testing.checks import Check, CheckFailed, DoesNotApply, Result, expected_failures, perform

__all__ = [
    "DIGITS",
    "Check",
    "CheckFailed",
    "DoesNotApply",
    "Result",
    "check_dataset",
    "check_metric",
    "check_model",
    "check_recipe",
    "check_reference",
    "check_sampler",
    "check_suite",
    "expected_failures",
    "parametrize",
    "perform",
]

DIGITS = DataSpec(name="digits", shape=(1, 8, 8), num_classes=10)
"""What models and samplers are checked on unless told otherwise: the shape of scikit-learn's digits."""


def check_model(spec: str, data: DataSpec = DIGITS) -> list[Check]:
    """The checks of a model: capabilities, shapes, energies, gradients, randomness, saving and loading.

    Args:
        spec: ``my-ebm:hidden=8``, or an import path such as ``my_ebm:build``.
        data: what the model is made for.

    Raises:
        SpecError: if there is no such model.
        PluginError: if it cannot be imported.
    """
    from jembench.testing import models

    return models.checks(spec, data)


def check_sampler(spec: str, data: DataSpec = DIGITS) -> list[Check]:
    """The checks of a sampler: shapes, randomness, what it keeps, and where its chains go on energies known exactly.

    Raises:
        SpecError: if there is no such sampler.
        PluginError: if it cannot be imported.
    """
    from jembench.testing import samplers

    return samplers.checks(spec, data)


def check_metric(spec: str) -> list[Check]:
    """The checks of a metric: what it requires, its protocol, its values and arrays, on a model known exactly.

    Raises:
        SpecError: if there is no such metric.
        PluginError: if it cannot be imported.
    """
    from jembench.testing import metrics

    return metrics.checks(spec)


def check_dataset(spec: str) -> list[Check]:
    """The checks of a dataset: its spec, types, ranges, and that it is the same each time.

    Raises:
        SpecError: if there is no such dataset.
        PluginError: if it cannot be imported.
    """
    from jembench.testing import datasets

    return datasets.checks(spec)


def check_suite(name: str) -> list[Check]:
    """The checks of a suite: that it can be read, planned and begun, and what it names exists.

    Args:
        name: that of its TOML file, which lies in a package that is installed.

    Raises:
        SpecError: if there is no such suite.
    """
    from jembench.testing import suites

    return suites.suite_checks(name)


def check_recipe(name: str) -> list[Check]:
    """The checks of a recipe: that it can be read, and that no other one is in its place.

    Raises:
        SpecError: if there is no such recipe.
    """
    from jembench.testing import suites

    return suites.recipe_checks(name)


def check_reference(name: str) -> list[Check]:
    """The check of a file of published numbers: that it can be read.

    Raises:
        SpecError: if there is no such file.
    """
    from jembench.testing import suites

    return suites.reference_checks(name)


def parametrize(checks: Sequence[Check]) -> Callable[[Any], Any]:
    """A pytest test for each check, by its name; those that are declared to fail must fail.

    The test function takes ``check`` and calls it.
    """
    import pytest

    def marks(check: Check) -> list[Any]:
        return [pytest.mark.xfail(reason=check.excuse, strict=True)] if check.excuse else []

    cases = [pytest.param(check, id=check.name, marks=marks(check)) for check in checks]
    return pytest.mark.parametrize("check", cases)
