"""Checks: what a component must hold to, one named check for each promise. Imports no torch and no pytest."""

from __future__ import annotations

import unittest
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

from jembench.catalog import registry
from jembench.catalog.registry import Kind, Resolved
from jembench.errors import SpecError, unknown

Factory = TypeVar("Factory", bound=Callable[..., Any])
Status = Literal["passed", "failed", "skipped", "expected failure", "unexpected success"]


class CheckFailed(AssertionError):
    """A component does not hold to a promise. The text says which, what was found, and how to mend it."""


class DoesNotApply(unittest.SkipTest):
    """A check that means nothing for this component: a test runner counts it as skipped."""


@dataclass(frozen=True, slots=True)
class Check:
    """One promise of one component. Calling it checks the promise.

    Raises:
        CheckFailed: when called, if the promise is not kept.
        DoesNotApply: when called, if the component makes no such promise.
    """

    name: str  # "energy-of-each-image-alone"
    promise: str  # one sentence: what holds for every component that passes
    spec: str  # of the component, canonical
    run: Callable[[], None]
    excuse: str = ""  # why the component is declared to fail; empty: it must pass

    def __call__(self) -> None:
        self.run()

    def __str__(self) -> str:
        return self.name


class Result(NamedTuple):
    """What became of a check."""

    check: Check
    status: Status
    message: str  # why it failed, was skipped, or was expected to fail

    @property
    def is_fine(self) -> bool:
        """Whether nothing is to be mended."""
        return self.status not in ("failed", "unexpected success")


def perform(check: Check) -> Result:
    """Run a check, whatever comes of it."""
    try:
        check()
    except DoesNotApply as reason:
        return Result(check, "skipped", str(reason))
    except Exception as error:
        if check.excuse:
            return Result(check, "expected failure", check.excuse)
        message = str(error) if isinstance(error, CheckFailed) else f"{type(error).__name__}: {error}"
        return Result(check, "failed", message)
    if check.excuse:
        return Result(
            check, "unexpected success", f"It is declared to fail ({check.excuse}), but passes. Take that back."
        )
    return Result(check, "passed", "")


def expected_failures(reasons: Mapping[str, str]) -> Callable[[Factory], Factory]:
    """Declare at a factory which checks its component fails, and why.

    A check that is declared to fail and passes counts as a failure: what was mended is to be taken back here.

    Args:
        reasons: the name of each check, with one sentence that a user can judge it by.
    """

    def mark(factory: Factory) -> Factory:
        factory.expected_failures = dict(reasons)  # type: ignore[attr-defined]
        return factory

    return mark


class Promise(NamedTuple):
    """A check before there is a component: its name, its sentence, and the function that takes the component."""

    name: str
    promise: str
    check: Callable[[Any], None]


def checks_of(kind: Kind, spec: str, promises: Sequence[Promise], prepare: Callable[[Resolved], Any]) -> list[Check]:
    """A check for every promise of a kind of component.

    Args:
        kind: of the component.
        spec: of the component.
        promises: of the kind.
        prepare: what a check gets, from the component: called anew for each check, so that none disturbs another.

    Raises:
        SpecError: if the component does not exist, or is declared to fail a check that does not.
        PluginError: if it cannot be imported.
    """
    resolved = registry.resolve(kind, spec)
    excuses: Mapping[str, str] = getattr(resolved.factory, "expected_failures", {})
    names = [promise.name for promise in promises]
    for name, reason in excuses.items():
        if name not in names:
            raise unknown(f"check of {kind}", name, names, "jembench plugin check")
        if not reason.strip():
            raise SpecError(f"{spec} is declared to fail {name} without a reason. Say why in a sentence.")
    return [
        Check(name, sentence, str(resolved), _bind(check, prepare, resolved), excuses.get(name, ""))
        for name, sentence, check in promises
    ]


def _bind(check: Callable[[Any], None], prepare: Callable[[Resolved], Any], resolved: Resolved) -> Callable[[], None]:
    return lambda: check(prepare(resolved))
