"""Checks: one function per promise, in a table. Imports no torch."""

import inspect
import traceback
import unittest
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

from jembench.catalog import registry
from jembench.catalog.discovery import Kind
from jembench.catalog.registry import Resolved
from jembench.errors import JembenchError, PluginError, Unavailable, error_text
from jembench.interfaces import DataSpec
from jembench.stopping import contained

DIGITS = DataSpec(name="digits", shape=(1, 8, 8), num_classes=10)
"""The default data for checks of models and samplers: the shape of scikit-learn's digits."""


class CheckFailed(AssertionError):
    """The failure of a check, with what is wrong and the remedy."""


class DoesNotApply(unittest.SkipTest):
    """The end of a check that does not apply.

    Test runners count it as skipped.
    """


@dataclass(frozen=True, slots=True)
class Check:
    """A check of one promise of one component; calling it runs the check.

    Raises:
        CheckFailed: when called, if the promise is broken.
        DoesNotApply: when called, if the component makes no such promise, or cannot be used here.
    """

    name: str
    promise: str  # one sentence
    kind: str  # of the component: "models"
    spec: str  # of the component, canonical
    run: Callable[[], None]

    def __call__(self) -> None:
        self.run()


class Result(NamedTuple):
    """The outcome of a check."""

    check: Check
    status: Literal["passed", "failed", "skipped"]
    message: str  # the reason for a failure or for being skipped


def perform(check: Check) -> Result:
    """Run a check and return its outcome."""
    try:
        check()
    except DoesNotApply as reason:
        return Result(check, "skipped", str(reason))
    except CheckFailed as failure:
        return Result(check, "failed", str(failure))
    return Result(check, "passed", "")


# --- components -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Subject:
    """A component under test.

    Every check gets its own subject, so that checks are independent.
    """

    resolved: Resolved
    context: tuple[Any, ...] = ()  # the factory's arguments beside the options
    kind: ClassVar[Kind]
    parts: ClassVar[tuple[str, ...]] = ()  # members of the protocol

    @property
    def data(self) -> DataSpec:
        """The description of the images that the component is made for."""
        data: DataSpec = self.context[0]
        return data

    def build(self) -> Any:
        """Call the factory, and check that its component has all ``parts``."""
        made = self.resolved.make(*self.context)
        missing = [part for part in self.parts if not hasattr(made, part)]
        require(
            not missing,
            f"The factory returns a {type(made).__name__}, which has no {', '.join(missing)}.",
        )
        return made


def checks_of(spec: str, subject: type[Subject], *context: Any) -> list[Check]:
    """Return a check for every promise of a kind of component.

    Args:
        spec: of the component.
        subject: the class of the subject, of which each check gets a new instance.
        context: the factory's arguments beside the options.

    Raises:
        SpecError: if the component does not exist.
        PluginError: if it cannot be imported.
    """
    resolved, causes = registry.resolve(subject.kind, spec), dict[str, str]()
    checks = []
    for promised in PROMISES[subject.kind]:
        run = promised.bind(partial(subject, resolved, context), causes)
        checks.append(Check(promised.name, promised.text, subject.kind, str(resolved), run))
    return checks


# --- promises -------------------------------------------------------------------------------------


class Promise(NamedTuple):
    """A promise of all components of a kind."""

    name: str  # "each-image-alone"
    text: str
    remedy: str  # the end of the message of a failure
    function: Callable[[Any], None]

    def bind(self, subject: Callable[[], Subject], causes: dict[str, str]) -> Callable[[], None]:
        """Return a function that checks a subject.

        It raises only CheckFailed and DoesNotApply.

        ``causes`` maps each error of the component to the first check that failed by it, to which
        later checks refer.
        """

        def run() -> None:
            try:
                with contained("It"):
                    self.function(subject())
            except DoesNotApply:
                raise
            except Unavailable as missing:
                raise DoesNotApply(str(missing)) from missing
            except Exception as error:
                # an error of the component's own code is identified by its place
                message = cause = str(error)
                if not isinstance(error, (CheckFailed, JembenchError)):
                    cause = _place(error)
                    message = f"{error_text(error)} ({cause})."
                first = causes.setdefault(cause, self.name)
                if first != self.name:
                    raise DoesNotApply(f"See the check {first}.") from error
                if not isinstance(error, PluginError):
                    message = f"{message} {self.remedy}"
                raise CheckFailed(message.strip()) from error

        return run


def _place(error: Exception) -> str:
    """Return the place of an error, outside of PyTorch if possible."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "/torch/" not in frame.filename]
    last = (own or frames)[-1]
    return f"{last.filename}:{last.lineno}"


PROMISES: dict[str, list[Promise]] = defaultdict(list)
"""The promises of each kind, in the order in which they are checked."""


def promise(*kinds: str) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Register a function as the check of a promise of components.

    The check is named after the function; the first paragraph of its docstring is the promise, the
    second the remedy.
    """

    def register(function: Callable[[Any], None]) -> Callable[[Any], None]:
        text, _, remedy = inspect.cleandoc(function.__doc__ or "").partition("\n\n")
        text, remedy = " ".join(text.split()), " ".join(remedy.split())
        promised = Promise(function.__name__.replace("_", "-"), text, remedy, function)
        for kind in kinds:
            PROMISES[kind].append(promised)
        return function

    return register


def require(holds: bool, text: str) -> None:
    """Fail the check with a message, unless a condition holds."""
    if not holds:
        raise CheckFailed(text)


def only_if(applies: bool, reason: str) -> None:
    """Skip the check for a reason, unless it applies."""
    if not applies:
        raise DoesNotApply(reason)


def is_count(number: Any, least: int = 1) -> bool:
    """Return whether a value is a whole number of at least ``least``."""
    return isinstance(number, int) and not isinstance(number, bool) and number >= least


@promise("models", "samplers", "metrics", "datasets")
def can_be_made(subject: Subject) -> None:
    """The factory returns a component with every part of the protocol of its kind.

    See jembench.interfaces. The factory is called with the options of the spec; factories of models
    and samplers get the DataSpec first. Raise jembench.plugin.Unavailable, with the remedy, if
    something is missing on this machine.
    """
    subject.build()
