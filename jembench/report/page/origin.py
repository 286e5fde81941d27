"""Where the numbers of a page come from: commands, software and hardware, trained models, protocols."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from jembench.report.record import grouped
from jembench.report.sections import Report
from jembench.report.text import Heading, Table, Text, fixed
from jembench.store.fits import FitRecord
from jembench.store.outcome import Cell, FitKey

Commands = Mapping[tuple[str, str, str, str], Sequence[str]]
"""The commands that measured something, by model, dataset, recipe and metric."""


def origin(report: Report, cells: Sequence[Cell], trained: Mapping[FitKey, FitRecord | None]) -> Iterator[Table]:
    """A table of each."""
    yield of_texts("Commands", ("time", "results", "command"), _commands(cells))
    yield of_texts("Software and hardware", ("measured", "results", "what", "versions"), _environments(cells))
    yield of_texts("Trained models", ("model", "dataset", "recipe", "seed", "iterations", "seconds"), _fits(trained))
    yield of_texts("Protocols", ("values", "protocol", "models"), _protocols(report))


_NUMBERS = ("results", "seed", "iterations", "seconds")


def of_texts(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table of texts, with numbers in some columns."""
    return Table(
        title=title,
        headings=tuple(Heading(name, identifies=name not in _NUMBERS) for name in headings),
        rows=tuple(tuple(map(Text, row)) for row in rows),
        footnotes=(),
    )


def commands_of(cells: Iterable[Cell]) -> Commands:
    """The commands that measured the values of each model and metric, in the order of the cells."""
    found: dict[tuple[str, str, str, str], dict[str, None]] = {}
    for cell in cells:
        place = (cell.fit.model, cell.fit.dataset, cell.fit.recipe, cell.metric)
        found.setdefault(place, {})[_command(cell)] = None
    return {place: tuple(filter(None, commands)) for place, commands in found.items()}


def _commands(cells: Sequence[Cell]) -> Iterator[tuple[str, ...]]:
    """Each command, when it first measured something, and how many results it measured in all."""
    for group in grouped(sorted(cells, key=_time), _command):
        if command := _command(group[0]):
            yield _minute(_time(group[0])), str(len(group)), command


def _command(cell: Cell) -> str:
    return str(cell.provenance.get("command", ""))


def _environments(cells: Sequence[Cell]) -> Iterator[tuple[str, ...]]:
    """What the results were measured with, the same versions and hardware once."""
    for group in grouped(cells, _environment):
        times = sorted(map(_time, group))
        period = " to ".join(dict.fromkeys(map(_minute, (times[0], times[-1]))))
        yield period, str(len(group)), *_environment(group[0])


_HARDWARE = {"processor": "{}", "cores": "{} cores", "gpu": "{}", "cuda": "CUDA {}", "device": "device {}"}


def _environment(cell: Cell) -> tuple[str, str]:
    """Hardware and commit, and versions, in words."""
    made = cell.provenance
    known = made.get("hardware") or {}
    hardware = [words.format(known[name]) for name, words in _HARDWARE.items() if known.get(name)]
    rest = [f"{name} {made[name]}" for name in ("threads", "commit") if made.get(name)]
    packages = {"python": made.get("python"), **(made.get("packages") or {})}
    versions = [f"{name} {version}" for name, version in packages.items() if version]
    return ", ".join([*hardware, *rest]), ", ".join(versions)


def _fits(trained: Mapping[FitKey, FitRecord | None]) -> Iterator[tuple[str, ...]]:
    for fit, record in trained.items():
        training = (str(record.iteration), fixed(record.seconds, 0)) if record else ("", "")
        yield fit.model, fit.dataset, fit.recipe, str(fit.seed), *training


def _protocols(report: Report) -> Iterator[tuple[str, ...]]:
    """Each protocol, with the values and the models that were measured under it."""
    records = [record for row in report.rows for record in row.records.values() if record.protocol]
    for group in grouped(records, lambda record: record.protocol):
        names = (dict.fromkeys(getattr(record, field) for record in group) for field in ("label", "model"))
        values, models = map(", ".join, names)
        yield values, group[0].protocol, models


def _time(cell: Cell) -> str:
    return str(cell.provenance.get("time", ""))


def _minute(time: str) -> str:
    """A time of ISO 8601, to the minute."""
    return f"{time[:16].replace('T', ' ')} UTC" if time else ""
