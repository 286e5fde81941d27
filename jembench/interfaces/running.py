"""Executors and trackers: where work runs, and who receives the events of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable


@runtime_checkable
class Executor(Protocol):
    """Runs jobs here or elsewhere. One job works on one fit and all its cells."""

    def run(self, jobs: Sequence[Callable[[], bool]]) -> None:
        """Call every job until it returns True. False: another process works on the same fit, try later."""
        ...


EventKind = Literal["training", "window", "diverged", "sampling", "measuring", "waiting", "warning", "finished"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """One thing that happened while a plan was carried out, as data.

    ============= ==================================================================================================
    kind          meaning, and the fields that it fills in beside ``fit``
    ============= ==================================================================================================
    ``training``  training starts or resumes
    ``window``    ``log_every`` iterations have ended: ``done`` and ``total`` iterations, and in ``values`` the columns
                  of ``history.csv``. A window in which training diverged is included
    ``diverged``  the guard found divergence: ``values`` has ``iteration`` and ``reason``, and ``returned_to`` and
                  ``remedy`` if training was rolled back
    ``sampling``  the model's own images are being drawn
    ``measuring`` a metric is being computed: ``metric``; later ``done`` and ``total`` images, if it reports them
    ``waiting``   another process works on the fit (sent again at each look)
    ``warning``   something failed that no outcome records: ``text``
    ``finished``  every cell of the fit has an outcome
    ============= ==================================================================================================
    """

    kind: EventKind
    fit: Mapping[str, Any] = field(default_factory=dict)  # model, dataset, recipe, seed and id
    metric: str = ""  # spec
    done: int = 0
    total: int = 0
    values: Mapping[str, float | str] = field(default_factory=dict)
    text: str = ""


@runtime_checkable
class Tracker(Protocol):
    """Receives the events of a run, in the process that started it."""

    def event(self, event: Event) -> None: ...
