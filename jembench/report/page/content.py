"""What stands in the page of a report."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from jembench.experiment import claims
from jembench.experiment.claims import Claim
from jembench.report.layout import tables_of
from jembench.report.names import NO_NAMES, Names
from jembench.report.page.joint import Joint, joint
from jembench.report.page.origin import Commands, commands_of, origin
from jembench.report.page.pictures import Picture, Pictures
from jembench.report.sections import Report
from jembench.report.text import Table
from jembench.store.fits import FitRecord
from jembench.store.outcome import Cell, FitKey

_SAMPLES = ("class-samples", "confident-samples", "neighbours", "distal")
"""The metrics whose figures show images."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """The content of a page, part by part. What is not known is empty."""

    title: str
    tables: Sequence[Table]
    joint: Sequence[Joint] = ()
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
        origin=[table for table in origin(report, cells, trained) if table.rows],
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

    read, root = pictures.store.read_arrays, pictures.store.root
    of_papers = judging.judge(claims.load(), cells, read, store=root)
    of_own = judging.judge(own, cells, read, store=root)
    found = [of_own, [one for one in of_papers if one.row.dataset]]
    return [table for each in found for table in verdicts.of_claims(each).tables()]
