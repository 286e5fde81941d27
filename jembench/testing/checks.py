"""Checks: one function for each promise, registered in one table. Imports no torch and no pytest."""

from __future__ import annotations

import inspect
import unittest
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

from jembench.catalog import registry
from jembench.catalog.discovery import Kind
from jembench.catalog.registry import Resolved
from jembench.errors import JembenchError, SpecError, Unavailable, error_text, unknown
from jembench.interfaces import DataSpec
from jembench.stopping import contained

Factory = TypeVar("Factory", bound=Callable[..., Any])
Status = Literal["passed", "failed", "skipped", "expected failure", "unexpected success"]


class CheckFailed(AssertionError):
    """A component does not keep a promise. The text says what was found, and how to fix it."""


class DoesNotApply(unittest.SkipTest):
    """A check that does not apply to this component: test runners count it as skipped."""


# --- the table --------------------------------------------------------------------------------------------------------


class Promise(NamedTuple):
    """A promise of all components of a kind: its name, its sentence, and the function that checks a subject."""

    name: str  # "each-image-alone"
    text: str
    remedy: str  # follows what was found in the message of a failure
    check: Callable[[Any], None]

    def check_of(self, kind: str, spec: str, subject: Callable[[], Any], excuse: str = "") -> Check:
        """The check of one component."""

        def run() -> None:
            try:
                self.check(subject())
            except Unavailable as missing:
                raise DoesNotApply(str(missing)) from missing
            except (CheckFailed, JembenchError) as failure:
                raise CheckFailed(f"{failure} {self.remedy}".strip()) from failure

        return Check(self.name, self.text, spec, run, excuse, kind)


PROMISES: dict[str, list[Promise]] = defaultdict(list)
"""The promises of each kind, in the order in which they are checked."""


def promise(*kinds: str) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Register a function as the check of a promise of these kinds.

    The function's name is that of the check, the first paragraph of its docstring the promise, the second the remedy.
    """

    def register(function: Callable[[Any], None]) -> Callable[[Any], None]:
        text, _, remedy = inspect.cleandoc(function.__doc__ or "").partition("\n\n")
        name = function.__name__.replace("_", "-")
        for kind in kinds:
            PROMISES[kind].append(Promise(name, " ".join(text.split()), " ".join(remedy.split()), function))
        return function

    return register


def require(holds: bool, text: str) -> None:
    """Fail the check with a text, unless it holds."""
    if not holds:
        raise CheckFailed(text)


def only_if(applies: bool, reason: str) -> None:
    """Skip the check for a reason, unless it applies."""
    if not applies:
        raise DoesNotApply(reason)


def is_count(number: Any, least: int = 1) -> bool:
    """Whether it is a whole number of at least ``least``."""
    return isinstance(number, int) and not isinstance(number, bool) and number >= least


@contextmanager
def explained(failure: str, remedy: str = "") -> Iterator[None]:
    """Fail the check if anything is raised inside, with the failure, the error and a remedy."""
    try:
        yield
    except (CheckFailed, DoesNotApply, Unavailable):
        raise
    except Exception as error:
        raise CheckFailed(f"{failure}: {error_text(error)}. {remedy}".rstrip()) from error


@contextmanager
def given(check: str) -> Iterator[None]:
    """Skip the check for an error inside, which another check reports."""
    try:
        yield
    except (DoesNotApply, Unavailable):
        raise
    except Exception as error:
        raise DoesNotApply(f"See the check {check}.") from error


@dataclass(frozen=True)
class Subject:
    """A component under test. Every check gets a subject of its own, so that no check disturbs another."""

    resolved: Resolved
    context: tuple[Any, ...] = ()  # what the factory is called with beside the options
    kind: ClassVar[Kind]
    protocol: ClassVar[type]
    parts: ClassVar[tuple[str, ...]] = ()  # of the protocol

    @property
    def data(self) -> DataSpec:
        """What the component is made for."""
        data: DataSpec = self.context[0]
        return data

    def build(self) -> Any:
        """Call the factory."""
        return self.resolved.make(*self.context)

    def make(self) -> Any:
        """A new component. Skips the check if it cannot be made, which the first check of its kind reports."""
        with self.made():
            made = self.build()
            require(isinstance(made, self.protocol), "It is no component of this kind.")
        return made

    def made(self) -> AbstractContextManager[None]:
        """Skip the check for an error inside, which the first check of the kind reports."""
        return given(PROMISES[self.kind][0].name)

    def complete(self) -> Any:
        """A new component that has every part of its protocol; fails the check otherwise."""
        made = self.build()
        missing = [part for part in self.parts if not hasattr(made, part)]
        require(not missing, f"It has no {', '.join(missing)}: see jembench.interfaces.{self.protocol.__name__}.")
        return made


@promise("samplers", "metrics", "trackers")
def all_parts(subject: Subject) -> None:
    """It has every part of the protocol of its kind."""
    subject.complete()


# --- one check --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Check:
    """One promise of one component. Calling it checks the promise.

    Raises:
        CheckFailed: when called, if the promise is not kept.
        DoesNotApply: when called, if the component makes no such promise.
    """

    name: str
    promise: str  # one sentence
    spec: str  # of the component, canonical
    run: Callable[[], None]
    excuse: str = ""  # why the component is declared to fail; empty: it must pass
    kind: str = ""  # of the component: "models"

    def __call__(self) -> None:
        self.run()

    def __str__(self) -> str:
        return self.name


class Result(NamedTuple):
    """The outcome of a check."""

    check: Check
    status: Status
    message: str  # why it failed, was skipped, or was expected to fail

    @property
    def is_fine(self) -> bool:
        """Whether nothing needs to be fixed."""
        return self.status not in ("failed", "unexpected success")

    def as_json(self) -> dict[str, Any]:
        """The result with what was checked, as a JSON object."""
        about = {"kind": self.check.kind, "component": self.check.spec, "check": self.check.name}
        found = {"status": self.status, "message": self.message, "is_fine": self.is_fine}
        return {**about, "promise": self.check.promise, **found}


def perform(check: Check) -> Result:
    """Run a check and catch whatever it raises."""
    try:
        with contained("It"):
            check()
    except DoesNotApply as reason:
        return Result(check, "skipped", str(reason))
    except Exception as error:
        if check.excuse:
            return Result(check, "expected failure", check.excuse)
        message = str(error) if isinstance(error, CheckFailed) else error_text(error)
        return Result(check, "failed", message)
    if check.excuse:
        message = f"It is declared to fail ({check.excuse}), but passes. Take that back."
        return Result(check, "unexpected success", message)
    return Result(check, "passed", "")


def expected_failures(reasons: Mapping[str, str]) -> Callable[[Factory], Factory]:
    """Declare at a factory which checks its component fails, and why.

    A check that is declared to fail and passes counts as a failure, so that the declaration is removed after a fix.

    Args:
        reasons: the name of each check, with one sentence for users.
    """

    def mark(factory: Factory) -> Factory:
        factory.expected_failures = dict(reasons)  # type: ignore[attr-defined]
        return factory

    return mark


def checks_of(spec: str, subject: type[Subject], *context: Any) -> list[Check]:
    """A check for every promise of a kind of component.

    Args:
        spec: of the component.
        subject: the class of what a check gets, anew for each check.
        context: what the factory is called with beside the options.

    Raises:
        SpecError: if the component does not exist, or is declared to fail a check that does not.
        PluginError: if it cannot be imported.
    """
    kind = subject.kind
    resolved = registry.resolve(kind, spec)
    excuses: Mapping[str, str] = getattr(resolved.factory, "expected_failures", {})
    names = [promise.name for promise in PROMISES[kind]]
    for name, reason in excuses.items():
        if name not in names:
            raise unknown(f"check of {kind}", name, names, "jembench plugin check")
        if not reason.strip():
            raise SpecError(f"{spec} is declared to fail {name} without a reason. Say why in a sentence.")
    return [
        promise.check_of(kind, str(resolved), lambda: subject(resolved, context), excuses.get(promise.name, ""))
        for promise in PROMISES[kind]
    ]
