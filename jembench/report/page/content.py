"""The content of a report's page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from jembench.catalog.spec import slug
from jembench.experiment import claims
from jembench.experiment.claims import Claim
from jembench.experiment.names import DisplayNames
from jembench.report.page.pictures import Picture, Pictures
from jembench.report.respects import headline
from jembench.report.rows import Row, grouped
from jembench.report.select import store_option
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

MOST = 12
"""The most models whose figures a page has, and among which it tests all differences."""

_UNTESTED = (
    "Among {number} models, a page marks no Pareto front and judges no claims of papers: "
    "`jembench report joint --models A,B{0}` and `jembench report --claims{0}` do."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """The content of a page, part by part. Unknown parts are empty."""

    title: str
    tables: Sequence[Table]
    byline: str = ""
    index: str = ""  # the address of the leaderboard that lists the page
    overview: Overview | None = None
    published: Sequence[Table] = ()  # with numbers that have no place beside ours
    figures: Mapping[str, Sequence[Picture]] = field(default_factory=dict)  # by metric
    undrawn: Mapping[str, str] = field(default_factory=dict)  # by metric: a note on other figures
    samples: Sequence[Picture] = ()
    trainings: Sequence[Picture] = ()
    claims: Sequence[Table] = ()
    origin: Sequence[Table] = ()  # trained models, commands, software and hardware
    recipes: Mapping[str, str] = field(default_factory=dict)  # every field, by recipe label
    left_out: Sequence[str] = ()  # what could not be read or drawn


def collect(report: Report, store: Store, title: str, own_claims: Sequence[Claim]) -> Page:
    """Return the page of a report.

    Args:
        report: of results of a store.
        store: that has the results.
        title: of the page.
        own_claims: the experiment's claims, judged beside those of papers.
    """
    # imports numpy, which tables need not
    from jembench.report.figures import base, training
    from jembench.report.page.overview import byline, overview

    cells, rows, significance = report.cells, report.joined, report.significance
    fits = [cell.fit for cell in cells]
    names = base.display_names(fits, report.names)
    colours = base.colours_of(fits, names)
    of_models = {fit.names: colours[base.model_of(fit, names)] for fit in fits}
    ours, published = report.tables_of(significance)

    pictures = Pictures(store)
    figures, undrawn = _figures(report, pictures, names, colours)
    models = grouped(cells, lambda cell: cell.fit.names)
    grids = {}
    for of_model in models[:MOST]:
        grid = pictures.of_samples(of_model, names)
        if grid:
            grids[of_model[0].fit.names] = grid
    samples = list(grids.values())
    for metric in _SAMPLES:
        samples += figures.pop(metric, ())
    by_id = {fit.id: fit for fit in fits}
    trained = {fit: store.read_fit(fit) for fit in by_id.values()}
    tested, of_papers = significance, claims.load()
    if len(models) > MOST:
        # the tests of all pairs would take minutes
        tested, of_papers = None, []
        undrawn["overview"] = _UNTESTED.format(store_option(store.root), number=len(models))
    curved = list(by_id.values())
    if len(curved) > MOST:
        curved = list(dict.fromkeys(cell.fit for cell in _first_seeds(cells)))
        undrawn["training"] = _others(len(curved), len(by_id), "--figures training", store)
    trainings = pictures.drawn(training.curves_of(curved, store, pictures.note, names))
    return Page(
        title=title,
        tables=ours,
        byline=byline(rows, cells),
        overview=overview(rows, grids, tested, report.names, of_models),
        published=published,
        figures=figures,
        undrawn=undrawn,
        samples=samples,
        trainings=trainings,
        claims=[*_judged(own_claims, cells, store), *_judged(of_papers, cells, store)],
        origin=[origin(cells, trained, rows)] if cells else (),
        recipes=_settings(trained),
        left_out=list(pictures.left_out),
    )


def _judged(asked: Sequence[Claim], cells: Sequence[Cell], store: Store) -> Sequence[Table]:
    """Judge claims; claims of papers only if they are on the same data."""
    from jembench.report.claims import document, judge

    findings = judge(asked, cells, store.read_arrays, store=store.root)
    shown = [finding for finding in findings if finding.row.dataset or not finding.claim.where]
    return document(shown).tables()


def _figures(
    report: Report, pictures: Pictures, names: DisplayNames, colours: Mapping[str, str]
) -> tuple[dict[str, list[Picture]], dict[str, str]]:
    """Draw each metric's figures, and the seeds of the joint view.

    A metric's figures are of the first seed of each model, so that a page's size does not grow with
    the seeds.

    Returns:
        The figures by metric, and notes on what is not drawn.
    """
    from jembench.report.figures import planning, values
    from jembench.report.figures.base import Result

    figures: dict[str, list[Picture]] = {}
    undrawn: dict[str, str] = {}
    store = pictures.store
    measured = [cell for cell in report.cells if cell.outcome.status == "ok"]
    for of_metric in grouped(measured, lambda cell: cell.metric.bare):
        metric, shown = of_metric[0].metric.bare, _first_seeds(of_metric)
        planned = planning.of_metrics(shown, store, pictures.note, names, colours)
        figures[metric] = pictures.drawn(planned)
        count = len({cell.fit.id for cell in shown})
        total = len({cell.fit.id for cell in of_metric})
        if count < total and figures[metric]:
            undrawn[metric] = _others(count, total, f"--metrics {metric}", store)

    metrics = set[str]()
    for rows in headline(report.joined).values():
        metrics.update(row.metric for row in rows)
    models = grouped(measured, lambda cell: cell.fit.names)
    in_view = []
    for cell in chain.from_iterable(models[:MOST]):
        if cell.metric in metrics:
            in_view.append(Result(cell, {}, names, colours))
    figures["seeds"] = pictures.drawn(values.seeds(in_view))
    return {metric: drawn for metric, drawn in figures.items() if drawn}, undrawn


def _first_seeds(cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells of each model's first seed, of at most :data:`MOST` models."""
    first = []
    for of_model in grouped(cells, lambda cell: cell.fit.names)[:MOST]:
        seed = min(cell.fit.seed for cell in of_model)
        first += [cell for cell in of_model if cell.fit.seed == seed]
    return first


def _others(count: int, total: int, option: str, store: Store) -> str:
    """Return a note on the trained models whose figures a page leaves out."""
    command = f"jembench figures {option}{store_option(store.root)}"
    return f"{count} of {total} trained models are drawn here; `{command}` draws all of them."


# --- origin ---------------------------------------------------------------------------------------

_ORIGIN = ("model", "dataset", "recipe", "seed", "iterations", "seconds", "measured")
_NUMBERS = ("seed", "iterations", "seconds")


def _settings(trained: Mapping[FitKey, FitRecord | None]) -> dict[str, str]:
    """Return every field of each recipe as JSON, by its label."""
    settings = {}
    for fit, record in trained.items():
        if record:
            settings[fit.recipe] = json.dumps(record.recipe, indent=1, ensure_ascii=False)
    return settings


def fit_anchor(fit: str) -> str:
    """Return the address of the training with this id, within a page."""
    return f"#fit-{slug(fit)}"


def origin(
    cells: Sequence[Cell], trained: Mapping[FitKey, FitRecord | None], results: Sequence[Row] = ()
) -> Table:
    """Return a row for each trained model, which opens to specs and commands.

    Footnotes say with which hardware and versions.

    Args:
        cells: the outcomes.
        trained: the records of the trainings.
        results: rows of the outcomes, with display names of models and datasets.
    """
    names = {row.fit: (row.name, row.dataset_name) for row in results}
    rows = []
    for group in grouped(cells, lambda cell: cell.fit):
        fit = group[0].fit
        model, dataset = names.get(fit.names, fit.names[:2])
        texts = [dataset, recipe_name(fit.recipe), str(fit.seed), "", ""]
        record = trained.get(fit)
        if record:
            texts[-2:] = str(record.iteration), fixed(record.seconds, 0)
        first = TableCell(model, href=fit_anchor(fit.id), details=_specs_and_commands(group))
        environments = dict.fromkeys(map(_environment, group))
        last = TableCell(_period(group), notes=tuple(environments))
        rows.append((first, *map(TableCell, texts), last))
    headings = [Heading(name, identifies=name not in _NUMBERS) for name in _ORIGIN]
    table = Table(title="Trained models", headings=tuple(headings), rows=tuple(rows))
    return numbered([table])[0]


def _specs_and_commands(cells: Sequence[Cell]) -> tuple[tuple[str, str], ...]:
    """Return the specs and the id of a trained model, and the commands that measured it."""
    fit = cells[0].fit
    specs = {"model": fit.model, "dataset": fit.dataset, "recipe": fit.recipe, "fit": fit.id}
    commands = dict.fromkeys(str(cell.provenance.get("command", "")) for cell in cells)
    return *specs.items(), *(("by", command) for command in commands)


def _period(cells: Sequence[Cell]) -> str:
    """Return the times of the first and the last measurement, to the minute."""
    times = sorted(cell.time[:16].replace("T", " ") for cell in cells)
    ends = dict.fromkeys((times[0], times[-1]))
    return " to ".join(filter(None, ends))


def _environment(cell: Cell) -> str:
    """Return hardware, commit and versions of a cell's provenance as ``name value`` pairs."""
    made = cell.provenance
    parts = dict(made.get("hardware") or {})
    for name in ("threads", "commit", "python"):
        parts[name] = made.get(name)
    parts |= made.get("packages") or {}
    return ", ".join(f"{name} {value}" for name, value in parts.items() if value)
