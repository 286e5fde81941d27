"""The content of a report's page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jembench.catalog.spec import slug
from jembench.experiment import claims
from jembench.experiment.claims import Claim
from jembench.report.page.pictures import Picture, Pictures
from jembench.report.respects import headline
from jembench.report.rows import Row, grouped
from jembench.report.table import Heading, Table, TableCell, fixed, numbered
from jembench.report.tables import recipe_name
from jembench.store.fits import FitRecord
from jembench.store.outcome import Cell, FitKey
from jembench.store.store import Store

if TYPE_CHECKING:
    from jembench.report.layout import Report
    from jembench.report.page.overview import Overview

_SAMPLES = ("class-samples", "confident-samples", "neighbours", "distal")
"""The metrics whose figures show images."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """The content of a page, part by part. What is not known is empty."""

    title: str
    tables: Sequence[Table]
    byline: str = ""
    index: str = ""  # the address of the leaderboard that lists the page
    overview: Overview | None = None
    published: Sequence[Table] = ()  # published numbers that have no place beside ours
    figures: Mapping[str, Sequence[Picture]] = field(default_factory=dict)  # by metric
    samples: Sequence[Picture] = ()
    trainings: Sequence[Picture] = ()
    claims: Sequence[Table] = ()
    origin: Sequence[Table] = ()  # trained models, commands, software and hardware
    recipes: Mapping[str, str] = field(default_factory=dict)  # every field of each, by its label
    left_out: Sequence[str] = ()  # what could not be read or drawn


def collect(report: Report, store: Store, title: str, own_claims: Sequence[Claim]) -> Page:
    """Return the page of a report.

    Args:
        report: of results of a store.
        store: of the results.
        title: of the page.
        own_claims: of the experiment, to be judged beside those of papers.
    """
    from jembench.report.claims import document, judge

    # imports numpy, which tables need not
    from jembench.report.figures import base, planning, training, values
    from jembench.report.page.overview import byline, overview

    cells, rows, significance = report.cells, report.joined, report.significance
    pictures, names = (
        Pictures(store),
        base.display_names((cell.fit for cell in cells), report.names),
    )
    colours = base.colours_of((cell.fit for cell in cells), names)
    in_overview = {cell.fit.names: colours[base.model_of(cell.fit, names)] for cell in cells}
    ours, published = report.tables_of(significance)
    trained = {
        fit: store.read_fit(fit) for fit in {cell.fit.id: cell.fit for cell in cells}.values()
    }
    figures = {}
    measured = [cell for cell in cells if cell.outcome.status == "ok"]
    for group in grouped(measured, lambda cell: cell.metric.bare):
        planned = planning.of_metrics(group, store, pictures.note, names, colours)
        figures[group[0].metric.bare] = pictures.drawn(planned)
    metrics = {row.metric for of_respect in headline(rows).values() for row in of_respect}
    shown = [base.Result(cell, {}, names, colours) for cell in measured if cell.metric in metrics]
    figures["seeds"] = pictures.drawn(values.seeds(shown))
    models = grouped(cells, lambda cell: cell.fit.names)
    samples = {
        group[0].fit.names: grid for group in models if (grid := pictures.of_samples(group, names))
    }
    images = [picture for name in _SAMPLES for picture in figures.pop(name, ())]
    of_own, of_papers = (  # p values are adjusted in each group
        judge(each, cells, store.read_arrays, store=store.root)
        for each in (own_claims, claims.load())
    )
    findings = [of_own, [finding for finding in of_papers if finding.row.dataset]]
    return Page(
        title=title,
        tables=ours,
        byline=byline(rows, cells),
        overview=overview(rows, samples, significance, report.names, in_overview),
        published=published,
        figures={metric: found for metric, found in figures.items() if found},
        samples=[*samples.values(), *images],
        trainings=pictures.drawn(training.curves_of(trained, store, pictures.note, names)),
        claims=[table for each in findings for table in document(each).tables()],
        origin=[origin(cells, trained, rows)] if cells else (),
        recipes={
            fit.recipe: json.dumps(of.recipe, indent=1, ensure_ascii=False)
            for fit, of in trained.items()
            if of
        },
        left_out=list(pictures.left_out),
    )


# --- origin ---------------------------------------------------------------------------------------

_ORIGIN = ("model", "dataset", "recipe", "seed", "iterations", "seconds", "measured")


def fit_anchor(fit: str) -> str:
    """Return the address, within the page of its results, of the training with this id."""
    return f"#fit-{slug(fit)}"


def origin(
    cells: Sequence[Cell], trained: Mapping[FitKey, FitRecord | None], results: Sequence[Row] = ()
) -> Table:
    """Return a row for each trained model, with its specs and commands.

    The row opens to them.

    Footnotes say with which hardware and versions.

    Args:
        cells: the outcomes.
        trained: the records of the trainings.
        results: the rows of the outcomes, which give models and datasets their display names.
    """
    rows, named = [], {row.fit: (row.name, row.dataset_name) for row in results}
    for group in grouped(cells, lambda cell: cell.fit):
        fit, record = group[0].fit, trained.get(group[0].fit)
        training = (str(record.iteration), fixed(record.seconds, 0)) if record else ("", "")
        times = sorted(cell.time[:16].replace("T", " ") for cell in group)
        measured = " to ".join(filter(None, dict.fromkeys((times[0], times[-1]))))
        commands = dict.fromkeys(str(cell.provenance.get("command", "")) for cell in group)
        specs = {"model": fit.model, "dataset": fit.dataset, "recipe": fit.recipe, "fit": fit.id}
        details = (*specs.items(), *(("by", command) for command in commands))
        model, dataset = named.get(fit.names, fit.names[:2])
        numbers = map(TableCell, (dataset, recipe_name(fit.recipe), str(fit.seed), *training))
        environments = tuple(dict.fromkeys(map(_environment, group)))
        first = TableCell(model, href=fit_anchor(fit.id), details=details)
        rows.append((first, *numbers, TableCell(measured, notes=environments)))
    headings = (
        Heading(name, identifies=name not in ("seed", "iterations", "seconds")) for name in _ORIGIN
    )
    return numbered([Table(title="Trained models", headings=tuple(headings), rows=tuple(rows))])[0]


def _environment(cell: Cell) -> str:
    """Return hardware, commit and versions of a cell's provenance as ``name value`` pairs."""
    made = cell.provenance
    some = {name: made.get(name) for name in ("threads", "commit", "python")}
    parts = {**(made.get("hardware") or {}), **some, **(made.get("packages") or {})}
    return ", ".join(f"{name} {value}" for name, value in parts.items() if value)
