"""The conversion of events to runs of a tracking library, one per fit.

Runs have windows, divergences and results.
"""

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Protocol

from jembench.catalog.spec import slug
from jembench.errors import Unavailable
from jembench.interfaces import Event


class TrackerRun(Protocol):
    """A tracking library's run for one fit. Methods return once values are kept."""

    def numbers(self, values: Mapping[str, float], iteration: int) -> None:
        """Log values of a training window, such as ``train/loss``."""

    def results(self, values: Mapping[str, float], iteration: int) -> None:
        """Log results of the trained model, such as ``results/fid``."""

    def text(self, name: str, text: str, iteration: int) -> None:
        """Log a text."""

    def close(self) -> None:
        """End the run in this process."""


Open = Callable[[str, Mapping[str, str]], TrackerRun]
"""The function that opens a new or former run, by its name and model, dataset, recipe, seed, id and
attempt.
"""


class PerFit:
    """A :class:`~jembench.interfaces.Tracker` with a run for each fit.

    After an intervention of the guard, training continues in a new run ``NAME-attempt-1``, since
    its iterations are repeated. Results of the trained model belong to the first run.
    """

    def __init__(self, open_run: Open) -> None:
        self._open_run = open_run
        self._runs: dict[tuple[str, int], TrackerRun] = {}

    def event(self, event: Event) -> None:
        """Log one event."""
        if event.kind == "finished":
            for run in self._runs.values():
                run.close()
            self._runs.clear()
        elif event.kind == "window":
            columns = [name for name in event.values if name not in ("iteration", "attempt")]
            self._run(event).numbers(
                {f"train/{name}": float(event.values[name]) for name in columns}, event.done
            )
        elif event.kind == "diverged":
            self._run(event).text("divergence", event.text, int(event.values["iteration"]))
        elif event.kind == "measured":
            values = {
                name: value
                for name, value in event.values.items()
                if name not in ("status", "seconds")
            }
            if values:
                self._run(event).results(
                    {f"results/{name}": float(values[name]) for name in values}, event.done
                )
            else:
                self._run(event).text(event.metric, f"{event.values['status']}: {event.text}", 0)

    def _run(self, event: Event) -> TrackerRun:
        fit, attempt = event.fit, int(event.values.get("attempt", 0))
        key = fit["id"], attempt
        if key not in self._runs:
            name = (
                slug(f"{fit['model']}-{fit['dataset']}-{fit['recipe']}-s{fit['seed']}")
                + f"-{fit['id'][:8]}"
            )
            about = {part: str(fit[part]) for part in ("model", "dataset", "recipe", "seed", "id")}
            if attempt:
                name += f"-attempt-{attempt}"
            self._runs[key] = self._open_run(name, about | {"attempt": str(attempt)})
        return self._runs[key]


def require(package: str) -> None:
    """Check that the library of a tracker is installed.

    Raises:
        Unavailable: if it is not; the message has the command to install it.
    """
    if find_spec(package) is None:
        raise Unavailable(
            f"The tracker {package} needs the package {package}, which is not installed. Install "
            "it: "
            f'pip install "jembench[{package}]"'
        )
