"""What stands in the page of a report."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jembench.experiment import claims
from jembench.experiment.claims import Claim
from jembench.report.layout import tables_of
from jembench.report.names import NO_NAMES, Names
from jembench.report.page.joint import Joint, joint
from jembench.report.page.pictures import Picture, Pictures
from jembench.report.record import grouped
from jembench.report.sections import Report
from jembench.report.text import Heading, Table, Text, fixed
from jembench.store.fits import FitRecord
from jembench.store.outcome import Cell, FitKey

_SAMPLES = ("class-samples", "confident-samples", "neighbours", "distal")
"""The metrics whose figures show images."""


Commands = Mapping[tuple[str, str, str, str], Sequence[str]]
"""The commands that measured something, by model, dataset, recipe and metric."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """The content of a page, part by part. What is not known is empty."""

    title: str
    tables: Sequence[Table]
    joint: Sequence[Joint] = ()
    running: Sequence[Table] = ()  # what is being done
    unfinished: Sequence[Picture] = ()  # trainings that go on
    published: Sequence[Table] = ()  # what of the published numbers has no place beside ours
    figures: Mapping[str, Sequence[Picture]] = field(default_factory=dict)  # by metric
    samples: Sequence[Picture] = ()
    trainings: Sequence[Picture] = ()
    claims: Sequence[Table] = ()
    origin: Sequence[Table] = ()  # commands, software and hardware, trained models, protocols
    commands: Commands = field(default_factory=dict)
    recipes: Mapping[str, str] = field(default_factory=dict)  # every field of each, by its label
    left_out: Sequence[str] = ()  # what could not be read or drawn


def collect(
    title: str,
    report: Report,
    cells: Sequence[Cell],
    pictures: Pictures | None,
    names: Names = NO_NAMES,
    own_claims: Sequence[Claim] = (),
) -> Page:
    """The page of some results.

    Args:
        title: of the page.
        report: the results as records.
        cells: the outcomes that they were made of.
        pictures: of the store that holds them; None: there is no store, and so nothing but numbers.
        names: display names by canonical specs and recipes.
        own_claims: of the experiment, to be judged beside those of papers.
    """
    ours, published = tables_of(report)
    fits = {cell.fit.id: cell.fit for cell in cells}.values()
    trained = {fit: pictures.store.read_fit(fit) if pictures else None for fit in fits}
    page = Page(
        title=title,
        tables=ours,
        joint=list(joint(report)),
        published=published,
        origin=[table for table in _origin(report, cells, trained) if table.rows],
        commands=commands_of(cells),
    )
    return _with_store(page, cells, trained, pictures, names, own_claims) if pictures else page


def _with_store(
    page: Page,
    cells: Sequence[Cell],
    trained: Mapping[FitKey, FitRecord | None],
    pictures: Pictures,
    names: Names,
    own_claims: Sequence[Claim],
) -> Page:
    """The page with what a store holds beside the numbers."""
    figures = pictures.of_metrics(cells, names)
    if seeds := pictures.of_seeds([cell for cell in cells if _is_shown(cell, page.joint)], names):
        figures["seeds"] = seeds
    images = [picture for name in _SAMPLES for picture in figures.pop(name, ())]
    interventions = {fit: record.interventions if record else () for fit, record in trained.items()}
    return replace(
        page,
        figures=figures,
        samples=[*pictures.of_samples(cells, names), *images],
        trainings=[one for fit, notes in interventions.items() for one in pictures.of_training(fit, notes, names)],
        claims=_claims(own_claims, cells, pictures),
        recipes={
            fit.recipe: json.dumps(record.recipe, indent=1, ensure_ascii=False)
            for fit, record in trained.items()
            if record
        },
        left_out=list(pictures.left_out),
    )


def _is_shown(cell: Cell, views: Sequence[Joint]) -> bool:
    """Whether a cell's values are in the joint view."""
    texts = (text for view in views for row in view.table.rows for text in row)
    return cell.metric in {text.record.metric for text in texts if text.record}


def _claims(own: Sequence[Claim], cells: Sequence[Cell], pictures: Pictures) -> list[Table]:
    """All claims of the experiment, and those of papers that were measured; their p values are adjusted apart."""
    from jembench.report import judging, verdicts

    read, root, known = pictures.store.read_arrays, pictures.store.root, pictures.differences
    of_papers = judging.judge(claims.load(), cells, read, store=root, known=known)
    of_own = judging.judge(own, cells, read, store=root, known=known)
    found = [of_own, [one for one in of_papers if one.row.dataset]]
    return [table for each in found for table in verdicts.of_claims(each).tables()]


# --- where the numbers come from --------------------------------------------------------------------------------------


def _origin(report: Report, cells: Sequence[Cell], trained: Mapping[FitKey, FitRecord | None]) -> Iterator[Table]:
    yield of_texts("Commands", ("time", "results", "command"), _commands(cells))
    yield of_texts("Software and hardware", ("measured", "results", "what", "versions"), _environments(cells))
    yield of_texts("Trained models", ("model", "dataset", "recipe", "seed", "iterations", "seconds"), _fits(trained))
    yield of_texts("Protocols", ("values", "protocol", "models"), _protocols(report))


_NUMBERS = ("results", "seed", "iterations", "seconds", "loss")


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
    for group in grouped(cells, lambda cell: json.dumps(_environment(cell), sort_keys=True)):
        found, times = _environment(group[0]), sorted(map(_time, group))
        period = " to ".join(dict.fromkeys(map(_minute, (times[0], times[-1]))))
        packages = {"python": found["python"], **(found["packages"] or {})}
        hardware = [str(value) for value in (found["hardware"] or {}).values() if value]
        commit = f"commit {found['commit']}" if found["commit"] else ""
        versions = ", ".join(f"{name} {version}" for name, version in packages.items() if version)
        yield period, str(len(group)), ", ".join(filter(None, [*_named(hardware, found), commit])), versions


def _environment(cell: Cell) -> dict[str, Any]:
    return {name: cell.provenance.get(name) for name in ("commit", "python", "packages", "hardware", "threads")}


def _named(hardware: Sequence[str], found: Mapping[str, Any]) -> Iterator[str]:
    device, *rest = hardware or [""]
    yield from (f"{text} cores" if text.isdecimal() else text for text in rest)
    yield f"device {device}" if device else ""
    yield f"threads {found['threads']}" if found["threads"] else ""


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
