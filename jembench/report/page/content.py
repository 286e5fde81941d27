"""What stands in the page of a report."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """The content of a page, part by part. What is not known is empty."""

    title: str
    joint: Sequence[Joint]
    tables: Sequence[Table]
    published: Sequence[Table]  # what of the published numbers has no place beside ours
    figures: Mapping[str, Sequence[Picture]]  # by metric
    samples: Sequence[Picture]
    trainings: Sequence[Picture]
    claims: Sequence[Table]
    origin: Sequence[Table]  # commands, software and hardware, trained models, protocols
    recipes: Mapping[str, str]  # every field of each, by its label
    left_out: Sequence[str]  # what could not be read or drawn


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
    views = list(joint(report))
    figures = pictures.of_metrics(cells, names) if pictures else {}
    if pictures and (seeds := pictures.of_seeds([cell for cell in cells if _is_shown(cell, views)], names)):
        figures["seeds"] = seeds
    trained = _trained(cells, pictures)
    images = [picture for name in _SAMPLES for picture in figures.pop(name, ())]
    return Page(
        title=title,
        joint=views,
        tables=ours,
        published=published,
        figures=figures,
        samples=[*pictures.of_samples(cells, names), *images] if pictures else [],
        trainings=pictures.of_trainings(cells, names) if pictures else [],
        claims=_claims(own_claims, cells, pictures) if pictures else [],
        origin=[table for table in _origin(report, cells, trained) if table.rows],
        recipes={
            fit.recipe: json.dumps(record.recipe, indent=1, ensure_ascii=False)
            for fit, record in trained.items()
            if record
        },
        left_out=list(pictures.left_out) if pictures else [],
    )


def _is_shown(cell: Cell, views: Sequence[Joint]) -> bool:
    """Whether a cell's values are in the joint view."""
    texts = (text for view in views for row in view.table.rows for text in row)
    return cell.metric in {text.record.metric for text in texts if text.record}


def _claims(own: Sequence[Claim], cells: Sequence[Cell], pictures: Pictures) -> list[Table]:
    """All claims of the experiment, and those of papers that were measured; their p values are adjusted apart."""
    from jembench.report import judging, verdicts

    read, root = pictures.store.read_arrays, pictures.store.root
    of_papers = judging.judge(claims.load(), cells, read, store=root)
    found = [judging.judge(own, cells, read, store=root), [one for one in of_papers if one.row.dataset]]
    return [table for each in found for table in verdicts.of_claims(each).tables()]


# --- where the numbers come from --------------------------------------------------------------------------------------


def _origin(report: Report, cells: Sequence[Cell], trained: Mapping[FitKey, FitRecord | None]) -> Iterator[Table]:
    yield _table("Commands", ("time", "command"), _commands(cells))
    yield _table("Software and hardware", ("measured", "results", "what", "versions"), _environments(cells))
    yield _table("Trained models", ("model", "dataset", "recipe", "seed", "iterations", "seconds"), _fits(trained))
    yield _table("Protocols", ("values", "protocol", "models"), _protocols(report))


def _table(title: str, headings: Sequence[str], rows: Iterator[tuple[str, ...]]) -> Table:
    return Table(
        title=title,
        headings=tuple(
            Heading(name, identifies=name not in ("results", "seed", "iterations", "seconds")) for name in headings
        ),
        rows=tuple(tuple(map(Text, row)) for row in rows),
        footnotes=(),
    )


def _commands(cells: Sequence[Cell]) -> Iterator[tuple[str, ...]]:
    """Each command that measured something, when it first did."""
    times: dict[str, str] = {}
    for cell in sorted(cells, key=_time):
        times.setdefault(str(cell.provenance.get("command", "")), _time(cell))
    yield from ((_minute(time), command) for command, time in times.items() if command)


def _environments(cells: Sequence[Cell]) -> Iterator[tuple[str, ...]]:
    """What the results were measured with, the same versions and hardware once."""
    for group in grouped(cells, lambda cell: json.dumps(_environment(cell), sort_keys=True)):
        found, times = _environment(group[0]), sorted(map(_time, group))
        period = " to ".join(dict.fromkeys((_minute(times[0]), _minute(times[-1]))))
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


def _trained(cells: Sequence[Cell], pictures: Pictures | None) -> dict[FitKey, FitRecord | None]:
    """What the store knows of the training of each fit."""
    fits = list({cell.fit.id: cell.fit for cell in cells}.values())
    return {fit: pictures.store.read_fit(fit) if pictures else None for fit in fits}


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
