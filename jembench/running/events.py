"""Progress events: from training and measuring to the display and to the trackers that the user chose."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Callable

from jembench.catalog import registry
from jembench.catalog.spec import split_list
from jembench.errors import Fallback
from jembench.interfaces import Event, Tracker
from jembench.store.outcome import FitKey

VARIABLE = "JEMBENCH_TRACKERS"
"""The environment variable that lists trackers: registered names or import paths, with options."""

Report = Callable[[Event], None]
"""Sends one event."""


def chosen_trackers() -> list[str]:
    """The specs in ``JEMBENCH_TRACKERS``."""
    return split_list(os.environ.get(VARIABLE, ""))


class Events:
    """Sends each event to the display and to the trackers of ``JEMBENCH_TRACKERS``.

    A tracker that raises is left out from then on, with a warning: it must not end a training of days.

    Args:
        display: what shows the progress, or None.

    Raises:
        SpecError: for a tracker or an option that does not exist.
    """

    def __init__(self, display: Tracker | None = None) -> None:
        self._display = display
        self._trackers: dict[str, Tracker] = {
            spec: registry.resolve("trackers", spec).make() for spec in chosen_trackers()
        }

    def of(self, fit: FitKey) -> Report:
        """A function that sends the events of one fit."""
        names = {"model": fit.model, "dataset": fit.dataset, "recipe": fit.recipe, "seed": fit.seed, "id": fit.id}
        return lambda event: self._send(dataclasses.replace(event, fit=names))

    def _send(self, event: Event) -> None:
        if self._display:
            self._display.event(event)
        for spec, tracker in list(self._trackers.items()):
            try:
                tracker.event(event)
            except Exception as error:
                del self._trackers[spec]
                warnings.warn(
                    f"The tracker {spec} failed and gets no more events: {type(error).__name__}: {error}",
                    Fallback,
                    stacklevel=2,
                )
