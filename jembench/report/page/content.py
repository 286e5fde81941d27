"""The content of a report's page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from jembench.experiment import claims
from jembench.experiment.claims import Claim
from jembench.report.layout import tables_of
from jembench.report.names import NO_NAMES, Names
from jembench.report.page.pictures import Picture, Pictures
from jembench.report.page.tables import origin, overview
from jembench.report.sections import Report
from jembench.report.text import Table
from jembench.store.outcome import Cell

_SAMPLES = ("class-samples", "confident-samples", "neighbours", "distal")
"""The metrics whose figures show images."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """The content of a page, part by part. What is not known is empty."""

    title: str
    tables: Sequence[Table]
    overview: Sequence[Table] = ()
    published: Sequence[Table] = ()  # published numbers that have no place beside ours
    figures: Mapping[str, Sequence[Picture]] = field(default_factory=dict)  # by metric
    samples: Sequence[Picture] = ()
    trainings: Sequence[Picture] = ()
    claims: Sequence[Table] = ()
    origin: Sequence[Table] = ()  # trained models, commands, software and hardware
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
    """Return the page of some results.

    Args:
        title: of the page.
        report: the results as records.
        cells: the outcomes that they were made of.
        pictures: of the store that holds them; None: there is no store, and so nothing but numbers.
        names: display names by canonical specs and recipes.
        own_claims: of the experiment, to be judged beside those of papers.
    """
    views = list(overview(report))
    ours, published = tables_of(report)
    above, _ = tables_of(replace(report, published=()), shown=views)
    fits = {cell.fit.id: cell.fit for cell in cells}.values()
    trained = {fit: pictures.store.read_fit(fit) if pictures else None for fit in fits}
    page = Page(
        title=title,
        tables=ours,
        overview=above if views else (),
        published=published,
        origin=[origin(cells, trained)] if cells else (),
    )
    if pictures is None:
        return page
    metrics = {record.metric for view in views for row in view.rows for record in row.records.values()}
    figures = pictures.of_metrics(cells, names)
    if seeds := pictures.of_seeds([cell for cell in cells if cell.metric in metrics], names):
        figures["seeds"] = seeds
    images = [picture for name in _SAMPLES for picture in figures.pop(name, ())]
    recipes = {fit.recipe: json.dumps(of.recipe, indent=1, ensure_ascii=False) for fit, of in trained.items() if of}
    return replace(
        page,
        figures=figures,
        samples=[*pictures.of_samples(cells, names), *images],
        trainings=[one for fit, of in trained.items() for one in pictures.of_training(fit, of, names)],
        claims=_claims(own_claims, cells, pictures),
        recipes=recipes,
        left_out=list(pictures.left_out),
    )


def _claims(own: Sequence[Claim], cells: Sequence[Cell], pictures: Pictures) -> list[Table]:
    """Judge the claims of the experiment, and those of papers that were measured; p values are adjusted apart."""
    from jembench.report.claims import document, judge

    read, root = pictures.store.read_arrays, pictures.store.root
    of_papers = judge(claims.load(), cells, read, store=root)
    of_own = judge(own, cells, read, store=root)
    found = [of_own, [one for one in of_papers if one.row.dataset]]
    return [table for each in found for table in document(each).tables()]
