"""From events to runs of a tracking library: each fit is one, with its windows, divergences and results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Protocol

from jembench.catalog.spec import slug
from jembench.errors import Unavailable
from jembench.interfaces import Event
from jembench.training.guard import describe_event


class Run(Protocol):
    """What a tracking library keeps of one fit. It is on the disk, or sent, when a method returns."""

    def numbers(self, values: Mapping[str, float], iteration: int) -> None:
        """Note numbers of training, ``train/loss``."""

    def results(self, values: Mapping[str, float], iteration: int) -> None:
        """Note what was measured after the last iteration, ``results/fid``."""

    def text(self, name: str, text: str, iteration: int) -> None:
        """Note what happened in words."""

    def close(self) -> None:
        """Nothing follows in this process."""


Open = Callable[[str, Mapping[str, str]], Run]
"""Opens a run, or opens it again, by its name and by what the fit is: model, dataset, recipe, seed, id and attempt."""


class PerFit:
    """A :class:`~jembench.interfaces.Tracker` with a run for each fit.

    What training did after the guard had changed it is a run of its own, since its iterations are counted again:
    ``NAME-attempt-1``. Results of the trained model belong to the first one.
    """

    def __init__(self, opened: Open) -> None:
        self._opened = opened
        self._runs: dict[tuple[str, int], Run] = {}

    def event(self, event: Event) -> None:
        """Take one event."""
        if event.kind == "finished":
            for run in self._runs.values():
                run.close()
            self._runs.clear()
        elif event.kind == "window":
            columns = [name for name in event.values if name not in ("iteration", "attempt")]
            self._run(event).numbers({f"train/{name}": float(event.values[name]) for name in columns}, event.done)
        elif event.kind == "diverged":
            self._run(event).text("divergence", describe_event(event.values), int(event.values["iteration"]))
        elif event.kind == "measured":
            self._measured(event)

    def _measured(self, event: Event) -> None:
        run = self._run(event)
        labels = [name for name in event.values if name not in ("status", "seconds")]
        if labels:
            run.results({f"results/{name}": float(event.values[name]) for name in labels}, event.done)
        else:
            run.text(event.metric, f"{event.values['status']}: {event.text}", 0)

    def _run(self, event: Event) -> Run:
        fit, attempt = event.fit, int(event.values.get("attempt", 0))
        key = fit["id"], attempt
        if key not in self._runs:
            name = slug(f"{fit['model']}-{fit['dataset']}-{fit['recipe']}-s{fit['seed']}") + f"-{fit['id'][:8]}"
            about = {each: str(fit[each]) for each in ("model", "dataset", "recipe", "seed", "id")}
            name += f"-attempt-{attempt}" * bool(attempt)
            self._runs[key] = self._opened(name, about | {"attempt": str(attempt)})
        return self._runs[key]


def require(package: str) -> None:
    """Whether a tracker's library is installed.

    Raises:
        Unavailable: if it is not, with the command that installs it.
    """
    if find_spec(package) is None:
        raise Unavailable(
            f"The tracker {package} needs the package {package}, which is not installed. Install it: "
            f'pip install "jembench[{package}]"'
        )
