"""The energies of data and samples over training."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from jembench.errors import StoreError
from jembench.files import read_bytes
from jembench.report.figures import names, style
from jembench.report.figures.drawing import Drawing, Planned
from jembench.store.outcome import FitKey
from jembench.training.picture import History, curves_in, plot_energies


def plan(fits: Iterable[tuple[FitKey, History]]) -> Iterator[Planned]:
    """A figure for each model that was trained on energies."""
    for fit, history in fits:
        if curves_in(history):
            yield Planned(names.stem("energies", [fit]), partial(energies, names.title_of(fit), history))


def energies(title: str, history: History) -> Drawing:
    """The energies of a history, abandoned attempts included."""
    figure = style.new_figure(style.PAGE, 3.2, title)
    axes = figure.subplots()
    plot_energies(axes, history)
    style.legend_below(figure, axes, columns=2)
    curves = ("iteration", "attempt", *curves_in(history))
    return Drawing(figure, [{name: row.get(name, "") for name in curves} for row in history])


def read_history(path: Path) -> History:
    """What ``history.csv`` of a fit holds; nothing, if there is none.

    Raises:
        StoreError: if it is damaged.
    """
    try:
        lines = io.StringIO(read_bytes(path).decode(), newline="")
        return [{name: float(text) for name, text in row.items() if text} for row in csv.DictReader(lines)]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, AttributeError, csv.Error) as error:
        raise StoreError(f"{path} is not the history of a fit ({error}); its energies cannot be drawn.") from error
