"""The conversion of events to a tracking library's runs, one per fit.

A run receives the windows, divergences and results of its fit.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Protocol

from jembench.catalog.spec import slug
from jembench.errors import Unavailable
from jembench.interfaces import Event

Numbers = Mapping[str, float]
"""Values by their names."""

About = Mapping[str, str]
"""The model, dataset, recipe, seed, id and attempt of a run."""


class TrackerRun(Protocol):
    """A tracking library's run for one fit.

    Methods return once values are kept.
    """

    def numbers(self, values: Numbers, iteration: int) -> None:
        """Log values of a training window, such as ``train/loss``."""

    def results(self, values: Numbers, iteration: int) -> None:
        """Log results of the trained model, such as ``results/fid``."""

    def text(self, name: str, text: str, iteration: int) -> None:
        """Log a text."""

    def close(self) -> None:
        """End the run in this process."""


Open = Callable[[str, About], TrackerRun]
"""The function that opens a run, new or resumed, with its name and parameters."""


class PerFit:
    """A :class:`~jembench.interfaces.Tracker` with a run for each fit.

    An intervention of the guard repeats iterations, so that training continues in a new run,
    ``NAME-attempt-1``. Results of the trained model go to the first run.
    """

    def __init__(self, open_run: Open) -> None:
        self._open_run = open_run
        self._runs: dict[tuple[str, int], TrackerRun] = {}

    def event(self, event: Event) -> None:
        """Log one event."""
        values, text = event.values, event.text
        if event.kind == "finished":
            for run in self._runs.values():
                run.close()
            self._runs.clear()
        elif event.kind == "window":
            losses = _named("train", values, ("iteration", "attempt"))
            self._run(event).numbers(losses, event.done)
        elif event.kind == "diverged":
            self._run(event).text("divergence", text, int(values["iteration"]))
        elif event.kind == "measured":
            results = _named("results", values, ("status", "seconds"))
            if results:
                self._run(event).results(results, event.done)
            else:
                self._run(event).text(event.metric, f"{values['status']}: {text}", 0)

    def _run(self, event: Event) -> TrackerRun:
        fit, attempt = event.fit, int(event.values.get("attempt", 0))
        key = fit["id"], attempt
        if key not in self._runs:
            name = slug(f"{fit['model']}-{fit['dataset']}-{fit['recipe']}-s{fit['seed']}")
            name += f"-{fit['id'][:8]}"
            if attempt:
                name += f"-attempt-{attempt}"
            about = {part: str(value) for part, value in fit.items()}
            self._runs[key] = self._open_run(name, about | {"attempt": str(attempt)})
        return self._runs[key]


def _named(
    group: str, values: Mapping[str, float | str], left_out: Sequence[str]
) -> dict[str, float]:
    """Return values as numbers, under a group's names, without ``left_out``."""
    names = [name for name in values if name not in left_out]
    return {f"{group}/{name}": float(values[name]) for name in names}


def require(package: str) -> None:
    """Check that the library of a tracker is installed.

    Raises:
        Unavailable: if it is not installed; the message has the command that installs it.
    """
    if find_spec(package) is None:
        raise Unavailable(
            f"The tracker {package} needs the package {package}, which is not installed. Install "
            f'it: pip install "jembench[{package}]"'
        )
