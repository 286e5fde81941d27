"""Verdicts on claims: each is tested on the models of a store that it names."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from jembench.catalog import discovery, registry, spec
from jembench.experiment.claims import Claim
from jembench.experiment.claims import Fit as Named
from jembench.experiment.names import Fit
from jembench.experiment.plan import trained_spec
from jembench.experiment.sweep import bare_name, with_options
from jembench.report import comparison
from jembench.report.differences import FIELDS, Line, legend, recipes_text, table
from jembench.report.formats import Document
from jembench.report.rows import Side, grouped, mean, rows, sides
from jembench.report.select import store_option
from jembench.report.table import Footnote, Table, TableCell
from jembench.store.outcome import Cell

CLAIM_FIELDS = ("claim", "text", "source", "direction", "within", *FIELDS)
"""The columns of the CSV of claims."""


class Finding(NamedTuple):
    """The verdict on one claim for one metric, dataset and recipe."""

    claim: Claim
    row: comparison.Difference  # without dataset and recipes: not measured
    metrics: tuple[str, ...]  # of the claim, that it is about
    # on limited images, other protocols than the paper's, and models at chance
    remarks: tuple[str, ...] = ()


Known = Mapping[tuple[Fit, str, str], Side]
"""The values of a store, by fit, metric and label."""


def judge(
    claims: Sequence[Claim],
    cells: Iterable[Cell],
    read: comparison.Read,
    *,
    store: Path = Path("runs"),
    resamples: int = comparison.RESAMPLES,
) -> list[Finding]:
    """Judge every claim for each dataset, recipe and metric in the store, or say why it has none.

    P values are adjusted by Holm within each paper, so that no verdict depends on other papers.

    Args:
        claims: in the order of the findings.
        cells: of one store, all evaluated on as many images.
        read: gives a cell's per-example values.
        store: its folder, for commands.
        resamples: of the bootstrap.
    """
    values, test = rows(cells), partial(comparison.contrast, read=read, resamples=resamples)
    known = sides(values)
    at_chance = {row.fit: f"{row.model} {row.at_chance}" for row in mean(values) if row.at_chance}
    findings = [
        finding for claim in claims for finding in _judge(claim, known, at_chance, test, store)
    ]
    judged = []
    for finding, row in zip(findings, _adjusted(findings), strict=True):
        above = (row.difference or 0.0) + finding.claim.margin > 0
        holds = above == (finding.claim.direction == "higher")
        verdict = comparison.conclusion(
            row, *(("held", "for") if holds else ("against", "against"))
        )
        judged.append(finding._replace(row=replace(row, verdict=verdict)))
    return judged


def _adjusted(findings: Sequence[Finding]) -> list[comparison.Difference]:
    """Return the difference of each finding with its p value after Holm within its paper."""
    rows = [finding.row for finding in findings]
    for paper in dict.fromkeys(finding.claim.paper for finding in findings):
        places = [place for place, finding in enumerate(findings) if finding.claim.paper == paper]
        adjusted = comparison.adjusted(rows[place] for place in places)
        for place, row in zip(places, adjusted, strict=True):
            rows[place] = row
    return rows


def _judge(
    claim: Claim,
    known: Known,
    at_chance: Mapping[Fit, str],
    test: Callable[..., comparison.Difference],
    store: Path,
) -> Iterator[Finding]:
    missing = dict.fromkeys(claim.metric)
    alike = claim.alike if claim.alike or claim.than_metric else None
    for a, b in _pairs(claim, dict.fromkeys(fit for fit, *_ in known)):
        for metric, than_metric in zip(
            claim.metric, claim.than_metric or claim.metric, strict=True
        ):
            for free in _free_options(
                claim, metric, [measured for fit, measured, _ in known if fit == a]
            ):
                side = _side(known, a, with_options(metric, free), claim.label)
                other = _side(
                    known, b, with_options(than_metric, free), claim.than_label or claim.label
                )
                if claim.number is not None:
                    other = comparison.number(claim.number, side)
                if side.keys() & other.keys():
                    missing.pop(metric, None)
                    limits = {one.cell.limit for one in side.values() if one.cell}
                    limited = (
                        f"on {limit} of the test images, by --limit" for limit in limits if limit
                    )
                    remarks = (*limited, *_remarks(claim, a, b, at_chance))
                    yield Finding(
                        claim,
                        test(side, other, margin=claim.margin, alike=alike),
                        (metric,),
                        remarks,
                    )
    if missing or claim.unmeasured:
        reason = claim.unmeasured or _remedy(claim, store, partly=len(missing) < len(claim.metric))
        row = comparison.Difference(
            metric=next(iter(missing), ""),
            model_a=claim.fits[0].model if claim.fits else "",
            model_b=claim.than[0].model if claim.than else None,
            verdict="not measured",
            reason=reason,
        )
        yield Finding(claim, row, tuple(missing))


def _remarks(claim: Claim, a: Fit, b: Fit, at_chance: Mapping[Fit, str]) -> Iterator[str]:
    """Yield how models depart from the protocol of the claim's paper, if it states one, and which
    are at chance.
    """
    paper = claim.paper
    recipes = dict.fromkeys(recipe for *_, recipe in (a, b) if recipe not in paper.recipes)
    departs = [f"dataset {a[1]}"] * (bare_name(a[1]) not in paper.datasets)
    departs += [f"recipe {' and '.join(recipes)}"] * bool(recipes)
    if paper.recipes and departs:
        yield f"not the paper's protocol ({', '.join(paper.datasets)}; recipe {paper.recipes[0]}): {'; '.join(departs)}"
    yield from (at_chance[fit] for fit in dict.fromkeys((a, b)) if fit in at_chance)


def _remedy(claim: Claim, store: Path, *, partly: bool) -> str:
    """Return why nothing was measured, as far as it can be known without the store, or the commands
    that do it.

    Args:
        claim: of which there are no values under some or all metrics.
        store: the folder.
        partly: there are values under some, of those that digits can judge.
    """
    installed = {component.name for component in discovery.components("models")}
    absent = [
        model for model in dict.fromkeys(map(bare_name, claim.models)) if model not in installed
    ]
    if absent:
        return f"no model {' or '.join(absent)} is installed"
    elsewhere = " --dataset cifar10" if partly and claim.not_on_digits else ""
    commands = " and ".join(
        f"`{command}{elsewhere}{store_option(store)}`" for command in claim.measure
    )
    never = claim.not_on_digits and (
        partly or all("--dataset" in command for command in claim.measure)
    )
    return f"not by digits, {claim.not_on_digits}: {commands}" if never else commands


# --- models and values
# ------------------------------------------------------------------------------------------------


def _pairs(claim: Claim, known: Iterable[Fit]) -> list[tuple[Fit, Fit]]:
    """Return the models that a claim is about, on each dataset; without named recipes, those
    trained by the same.
    """
    fits = list(known)
    return [
        (a, b)
        for own, other in zip(claim.fits, claim.than or claim.fits, strict=True)
        for a in fits
        for b in fits
        if a[1] == b[1]
        and _is(a, own, claim)
        and _is(b, other, claim)
        and (other.recipe or a[2] == b[2])
    ]


def _is(fit: Fit, named: Named, claim: Claim) -> bool:
    """Return if a claim names a model, whose spec has the options that its recipe adds, and no or
    this recipe.
    """
    model, _, recipe = fit
    base, *_ = _CHANGE.split(recipe)
    means_recipe = named.recipe == recipe if named.recipe else base not in claim.paper.apart
    return means_recipe and model == trained_spec(named.model, base)


_CHANGE = re.compile(r"\+(?=[\w.]+=)")  # in the label of a recipe: "digits+epochs=9"


def _free_options(claim: Claim, metric: str, measured: Iterable[str]) -> list[dict[str, str]]:
    """Return every combination of the options that a claim leaves free under which a model was
    measured.
    """
    found: list[dict[str, str]] = [{}]
    for parsed_metric in map(spec.parse, measured if claim.free else ()):
        options = {key: value for key, value in parsed_metric.arguments if key in claim.free}
        if parsed_metric.name == spec.parse(metric).name and options not in found:
            found.append(options)
    return found


def _side(known: Known, fit: Fit, metric: str, label: str) -> Side:
    """Return the values of seeds; none, if there are none or if it is not clear which label is
    meant.
    """
    canonical = registry.canonical("metrics", metric)
    found = [
        side
        for place, side in known.items()
        if place[:2] == (fit, canonical) and label in ("", place[2])
    ]
    return found[0] if len(found) == 1 else {}


# --- for people and for programs
# --------------------------------------------------------------------------------------


def document(findings: Sequence[Finding]) -> Document:
    """Return the verdicts for people, a table for each paper, and for programs."""
    return Document(
        _tables(findings), list(map(_record, findings)), CLAIM_FIELDS, level=comparison.LEVEL
    )


def _record(finding: Finding) -> dict[str, Any]:
    claim = finding.claim
    return {
        "claim": claim.id,
        "text": claim.text,
        "source": ", ".join(filter(None, (claim.paper.cite, claim.where, claim.paper.url))),
        "direction": claim.direction if claim.metric else None,
        "within": claim.within,
        **asdict(finding.row),
        "reason": "; ".join(filter(None, (finding.row.reason, *finding.remarks))),
    }


def _tables(findings: Sequence[Finding]) -> list[Table]:
    tables = list[Table]()
    measured = [finding for finding in findings if finding.row.dataset]
    for group in grouped(
        measured, lambda finding: (finding.claim.paper, finding.row.dataset, finding.row.recipe_a)
    ):
        lines, (paper, first) = list[Line](), (group[0].claim.paper, group[0].row)
        for claim, row, _, remarks in group:
            text = " · ".join((claim.text, *_context(claim, row)))
            lines.append(
                Line((TableCell(text, notes=(claim.where,)),), row, (row.reason, *remarks))
            )
        title = f"Claims · {paper.cite} · dataset {first.dataset} · recipe {first.recipe_a}"
        source = ", ".join(filter(None, (paper.title, paper.url)))
        tables.append(table(title, ["claim"], ["ours", "than"], lines, source))
    if tables:
        counted = Counter(finding.row.verdict for finding in findings)
        count = f"In all: {', '.join(f'{count} {verdict}' for verdict, count in counted.items())}."
        differences = [finding.row for finding in findings]
        notes = legend(differences, families=_families(findings))
        below = map(Footnote, (count, *notes))
        tables[-1] = replace(tables[-1], footnotes=(*tables[-1].footnotes, *below))
    return [*tables, *_not_measured([finding for finding in findings if not finding.row.dataset])]


def _families(findings: Sequence[Finding]) -> list[int]:
    """Return the number of tested values of each paper, for which its p values were adjusted."""
    tested = Counter(finding.claim.paper for finding in findings if finding.row.p is not None)
    return list(tested.values())


def _context(claim: Claim, row: comparison.Difference) -> Iterator[str]:
    """Yield what a claim's text does not say: which of several metrics and models this is, and the
    other recipe.
    """
    if len(claim.metric) > 1:
        yield row.metric
    yield from (model for model in claim.models if ":" in model)
    if row.recipe_a != row.recipe_b:
        yield recipes_text(row.recipe_a, row.recipe_b)


def _not_measured(findings: Sequence[Finding]) -> Iterator[Table]:
    """Yield a table of each paper's claims that are not measured, as notes: what measures them, and
    which they are.
    """
    for group in grouped(findings, lambda finding: finding.claim.paper):
        texts: dict[str, list[str]] = {}
        for claim, row, metrics, _ in group:
            part = f" (only {', '.join(metrics)})" if len(metrics) < len(claim.metric) else ""
            texts.setdefault(row.reason, []).append(f"· {claim.text}{part}")
        notes = tuple(
            Footnote("\n".join((f"{reason}:", *claims))) for reason, claims in texts.items()
        )
        title = f"Claims that are not measured · {group[0].claim.paper.cite} · {len(group)}"
        yield Table(title=title, footnotes=notes)
