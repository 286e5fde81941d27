"""Verdicts on claims, from the results of a store."""

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple

from jembench.catalog import discovery, registry
from jembench.catalog.spec import Spec
from jembench.experiment.claims import Claim, NamedFit, Paper
from jembench.experiment.plan import trained_spec
from jembench.report import comparison
from jembench.report.comparison import UNTESTED
from jembench.report.differences import Line, legend, recipes_text, table
from jembench.report.formats import Document
from jembench.report.rows import BySeed, Row, grouped, mean, rows, sides
from jembench.report.select import store_option
from jembench.report.table import Footnote, Table, TableCell
from jembench.store.outcome import Cell, Trained

Outcome = Literal["passed", "failed", "undecided", "error", "skipped"]
"""The outcome of a verdict: ``error`` could not be judged, ``skipped`` need not be."""

CLAIM_FIELDS = ("claim", "text", "source", "direction", "within", *comparison.FIELDS)
"""The columns of the CSV of claims."""


class Finding(NamedTuple):
    """The verdict on one claim for one metric, dataset and recipe."""

    claim: Claim
    row: comparison.Difference  # without dataset and recipes: not measured
    metrics: tuple[str, ...]  # of the claim: those of this verdict
    # on limited images, other protocols than the paper's, and models at chance
    remarks: tuple[str, ...] = ()
    outcome: Outcome = "error"


Values = Mapping[tuple[Trained, Spec, str], BySeed]
"""The values of a store, by fit, metric and label."""


def judge(
    claims: Sequence[Claim],
    cells: Iterable[Cell],
    read: comparison.Read,
    *,
    store: Path = Path("runs"),
    resamples: int = comparison.RESAMPLES,
) -> list[Finding]:
    """Judge every claim for each dataset, recipe and metric in the store.

    A claim without values in the store has a finding with the reason.

    P values are adjusted by Holm within each paper, so that no verdict depends on other papers.

    Args:
        claims: in the order of the findings.
        cells: of one store, all evaluated on the same number of images.
        read: gives a cell's per-example values.
        store: the store's folder, for commands.
        resamples: of the bootstrap.
    """
    values = rows(cells)
    at_chance = {row.fit: f"{row.model} {row.at_chance}" for row in mean(values) if row.at_chance}
    test = partial(comparison.contrast, read=read, resamples=resamples)
    gaps = {(row.fit, row.metric): row for row in values if row.value is None}
    fits = list(dict.fromkeys(row.fit for row in values))
    judge = _Judge(sides(values), fits, gaps, at_chance, test, store)
    findings: list[Finding] = []
    for claim in claims:
        findings += judge.findings(claim)

    adjusted: dict[Paper, Iterator[comparison.Difference]] = {}
    for of_paper in grouped(findings, lambda finding: finding.claim.paper):
        differences = [finding.row for finding in of_paper]
        adjusted[of_paper[0].claim.paper] = iter(comparison.adjusted(differences))
    judged = []
    for finding in findings:
        row = next(adjusted[finding.claim.paper])
        if row.p is not None:
            finding = _concluded(finding, row)
        judged.append(finding)
    return judged


def _concluded(finding: Finding, row: comparison.Difference) -> Finding:
    """Return a finding with the verdict of its test."""
    above = (row.difference or 0.0) + finding.claim.margin > 0
    is_for = above == (finding.claim.direction == "higher")
    words = ("held", "for") if is_for else ("against", "against")
    verdict = comparison.conclusion(row, *words)
    outcome: Outcome = "undecided"
    if row.p is not None and row.p < comparison.LEVEL:
        outcome = "passed" if is_for else "failed"
    return finding._replace(row=replace(row, verdict=verdict), outcome=outcome)


class _Judge(NamedTuple):
    """The results and settings that a claim is judged by."""

    values: Values
    fits: Sequence[Trained]
    gaps: Mapping[tuple[Trained, Spec], Row]  # a row without a value
    at_chance: Mapping[Trained, str]
    test: Callable[..., comparison.Difference]
    store: Path

    def findings(self, claim: Claim) -> Iterator[Finding]:
        """Yield a claim's findings, then what was not measured."""
        meant = [fit for fit in self.fits if claim.by and _is_meant(fit, claim)]
        if meant:
            yield from (self._of_threshold(claim, fit) for fit in meant)
            return
        missing = dict.fromkeys(claim.metric)
        for a, b in _pairs(claim, dict.fromkeys(fit for fit, *_ in self.values)):
            for metric, of_a, of_b in self._measured(claim, a, b):
                missing.pop(metric, None)
                yield self._finding(claim, metric, of_a, of_b, (a, b))
        if missing or claim.unmeasured:
            partly = len(missing) < len(claim.metric)
            row = comparison.Difference(
                metric=next(iter(missing), ""),
                a=comparison.Side(claim.fits[0].model if claim.fits else ""),
                b=comparison.Side(claim.than[0].model if claim.than else None),
                verdict="not measured",
                reason=claim.unmeasured or _remedy(claim, self.store, partly=partly),
            )
            outcome: Outcome = "skipped" if claim.unmeasured else "error"
            yield Finding(claim, row, tuple(missing), outcome=outcome)

    def _of_threshold(self, claim: Claim, fit: Trained) -> Finding:
        """Return the finding of a threshold for a model, measured or not."""
        metric = registry.canonical("metrics", claim.metric[0])
        gap = self.gaps.get((fit, metric))
        for _, values, number in self._measured(claim, fit, fit):
            if not gap:
                return self._finding(claim, metric, values, number, (fit, fit))
        row = comparison.Difference(
            metric=metric,
            a=comparison.Side(fit.model, fit.recipe),
            b=comparison.Side(),
            dataset=fit.dataset,
            verdict="not measured",
            reason=gap.reason if gap else _remedy(claim, self.store, partly=False),
        )
        return Finding(claim, row, (metric,))

    def _measured(
        self, claim: Claim, a: Trained, b: Trained
    ) -> Iterator[tuple[Spec, BySeed, BySeed]]:
        """Yield each metric of a claim with both values, if they share seeds."""
        of_a = [metric for fit, metric, _ in self.values if fit == a]
        than_metrics = claim.than_metric or claim.metric
        for metric, than_metric in zip(claim.metric, than_metrics, strict=True):
            for options in _free_options(claim, metric, of_a):
                ours = self._value(a, metric.with_(**options), claim.label)
                if claim.number is None:
                    label = claim.than_label or claim.label
                    than = self._value(b, than_metric.with_(**options), label)
                else:
                    than = comparison.number(claim.number, ours)
                if ours.keys() & than.keys():
                    yield metric, ours, than

    def _value(self, fit: Trained, metric: str, label: str) -> BySeed:
        """Return a value by seed; {} if it is missing or ambiguous."""
        canonical = registry.canonical("metrics", metric)
        candidates = []
        for (owner, spec, own_label), values in self.values.items():
            if (owner, spec) == (fit, canonical) and label in ("", own_label):
                candidates.append(values)
        if len(candidates) == 1:
            return candidates[0]
        return {}

    def _finding(
        self, claim: Claim, metric: str, of_a: BySeed, of_b: BySeed, fits: tuple[Trained, Trained]
    ) -> Finding:
        alike = claim.alike if claim.alike or claim.than_metric else None
        outcome: Outcome = "error"
        if claim.by:
            difference, outcome = _beside_threshold(claim, of_a, of_b)
        else:
            difference = self.test(of_a, of_b, margin=claim.margin, alike=alike)
        limits = {row.cell.limit for row in of_a.values() if row.cell and row.cell.limit}
        remarks = [f"on {limit} of the test images, by --limit" for limit in limits]
        if any(row.cell and row.cell.split != "test" for row in of_a.values()):
            remarks = ["on validation images, by --split"]
        remarks += _departures(claim, *fits)
        for fit in dict.fromkeys(fits):
            if fit in self.at_chance:
                remarks.append(self.at_chance[fit])
        return Finding(claim, difference, (metric,), tuple(remarks), outcome)


def _beside_threshold(
    claim: Claim, values: BySeed, number: BySeed
) -> tuple[comparison.Difference, Outcome]:
    """Judge a value by its threshold, without a test.

    By the interval, the claim is held if the whole interval is on the claimed side. By the value,
    the mean over the seeds decides.
    """
    row = comparison.contrast(values, number, None)
    ends = (row.images.low, row.images.high)
    if claim.by == "value":
        ends = (row.difference, row.difference)
    row = replace(row, images=row.images._replace(p=None, test=None), training=UNTESTED, reason="")
    low, high = ends
    is_known = row.difference is not None and math.isfinite(row.difference)
    if low is None or high is None or not is_known:
        reason = 'the value has no interval; by = "value" judges the value'
        return replace(row, verdict="not testable", reason=reason), "error"
    if claim.direction == "lower":
        low, high = -high, -low
    outcome: Outcome = "undecided"
    if low >= 0 or high < 0:
        outcome = "passed" if low >= 0 else "failed"
    return replace(row, verdict=f"{_BY_THRESHOLD[outcome]} by the {claim.by}"), outcome


_BY_THRESHOLD: Mapping[Outcome, str] = {
    "passed": "held",
    "failed": "against",
    "undecided": "undecided",
}


def _departures(claim: Claim, a: Trained, b: Trained) -> Iterator[str]:
    """Yield how models depart from the paper's stated protocol."""
    paper = claim.paper
    departs = []
    if a.dataset.bare not in paper.datasets:
        departs.append(f"dataset {a.dataset}")
    recipes = {a.recipe: None, b.recipe: None}
    for recipe in paper.recipes:
        recipes.pop(recipe, None)
    if recipes:
        departs.append(f"recipe {' and '.join(recipes)}")
    if paper.recipes and departs:
        protocol = f"{', '.join(paper.datasets)}; recipe {paper.recipes[0]}"
        yield f"not the paper's protocol ({protocol}): {'; '.join(departs)}"


def _remedy(claim: Claim, store: Path, *, partly: bool) -> str:
    """Return why nothing was measured, or the commands that measure it.

    Args:
        claim: without values under some or all of its metrics.
        store: the folder.
        partly: True if some metrics, which digits can judge, have values.
    """
    installed = {component.name for component in discovery.components("models")}
    models = dict.fromkeys(Spec(model).bare for model in claim.models)
    absent = [model for model in models if model not in installed]
    if absent:
        return f"no model {' or '.join(absent)} is installed"
    options = store_option(store)
    if partly and claim.not_on_digits:
        options = f" --dataset cifar10{options}"
    commands = " and ".join(f"`{command}{options}`" for command in claim.measure)
    if claim.not_on_digits and (partly or all("--dataset" in text for text in claim.measure)):
        return f"not by digits, {claim.not_on_digits}: {commands}"
    return commands


# --- models and values ----------------------------------------------------------------------------


def _pairs(claim: Claim, fits: Collection[Trained]) -> Iterator[tuple[Trained, Trained]]:
    """Yield the pairs of models that a claim compares, by dataset.

    Where the claim names no recipe, both models have the same recipe.
    """
    for own, than in zip(claim.fits, claim.than or claim.fits, strict=True):
        fits_a = [fit for fit in fits if _is(fit, own, claim)]
        fits_b = [fit for fit in fits if _is(fit, than, claim)]
        for a, b in product(fits_a, fits_b):
            if a.dataset == b.dataset and (than.recipe or a.recipe == b.recipe):
                yield a, b


def _is_meant(fit: Trained, claim: Claim) -> bool:
    """Return whether a threshold is about a trained model: one that it names, or any."""
    return not claim.fits or any(_is(fit, named, claim) for named in claim.fits)


def _is(fit: Trained, named: NamedFit, claim: Claim) -> bool:
    """Return whether a claim names a trained model.

    The model's spec has the options that its recipe adds.
    """
    base, *_ = _CHANGE.split(fit.recipe)
    if named.recipe and named.recipe != fit.recipe:
        return False
    if not named.recipe and base in claim.paper.apart:
        return False
    return fit.model == trained_spec(named.model, base)


_CHANGE = re.compile(r"\+(?=[\w.]+=)")  # in the label of a recipe: "digits+epochs=9"


def _free_options(claim: Claim, metric: Spec, measured: Iterable[Spec]) -> list[dict[str, str]]:
    """Return the measured combinations of the options that a claim leaves free."""
    combinations: list[dict[str, str]] = [{}]
    if not claim.free:
        return combinations
    for spec in measured:
        if spec.name != metric.name:
            continue
        options = {key: value for key, value in spec.options.items() if key in claim.free}
        if options not in combinations:
            combinations.append(options)
    return combinations


# --- for people and for programs ------------------------------------------------------------------


def document(findings: Sequence[Finding]) -> Document:
    """Return the verdicts, with a table for each paper."""
    records = list(map(record, findings))
    return Document(tables(findings), records, CLAIM_FIELDS, level=comparison.LEVEL)


def record(finding: Finding) -> dict[str, Any]:
    """Return a verdict for programs, by the columns of the CSV."""
    claim = finding.claim
    return {
        "claim": claim.id,
        "text": claim.text,
        "source": _joined(", ", claim.paper.cite, claim.where, claim.paper.url),
        "direction": claim.direction if claim.metric else None,
        "within": claim.within,
        **finding.row.as_dict(),
        "reason": _joined("; ", finding.row.reason, *finding.remarks),
    }


def _joined(separator: str, *texts: str) -> str:
    return separator.join(filter(None, texts))


def tables(findings: Sequence[Finding]) -> list[Table]:
    """Return the verdicts for people, with a table for each paper."""

    def place(finding: Finding) -> tuple[Paper, str | None, str | None]:
        return finding.claim.paper, finding.row.dataset, finding.row.a.recipe

    shown = []
    missing = []
    for group in grouped(findings, place):
        if group[0].row.dataset:
            shown.append(_measured_table(group))
        else:
            missing += group
    if shown:
        # what holds for all tables stands below the last one
        differences = [finding.row for finding in findings]
        verdicts = Counter(row.verdict for row in differences)
        counts = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items())
        notes = legend(differences, families=_families(findings))
        below = map(Footnote, (f"In all: {counts}.", *notes))
        shown[-1] = replace(shown[-1], footnotes=(*shown[-1].footnotes, *below))
    return [*shown, *_not_measured(missing)]


def _measured_table(findings: Sequence[Finding]) -> Table:
    """Return the table of one paper's claims for one dataset and recipe."""
    paper, first = findings[0].claim.paper, findings[0].row
    lines = []
    for claim, row, _, remarks, _ in findings:
        text = " · ".join((claim.text, *_context(claim, row)))
        name = TableCell(text, notes=(claim.where,))
        lines.append(Line((name,), row, (row.reason, *remarks)))
    title = f"Claims · {paper.cite} · dataset {first.dataset} · recipe {first.a.recipe}"
    source = _joined(", ", paper.title, paper.url)
    return table(title, ["claim"], ["ours", "than"], lines, source)


def _families(findings: Sequence[Finding]) -> list[int]:
    """Count the tested values of each paper.

    The p values of a paper were adjusted for its count.
    """
    tested = Counter(finding.claim.paper for finding in findings if finding.row.p is not None)
    return list(tested.values())


def _context(claim: Claim, row: comparison.Difference) -> Iterator[str]:
    """Yield what the text of a claim leaves open: metric, models, recipes."""
    if len(claim.metric) > 1:
        yield row.metric
    if claim.by:
        yield row.a.model or ""
    yield from (model for model in claim.models if ":" in model)
    if row.a.recipe != row.b.recipe:
        yield recipes_text(row.a.recipe, row.b.recipe)


def _not_measured(findings: Sequence[Finding]) -> Iterator[Table]:
    """Yield a table of unmeasured claims per paper, grouped by reason."""
    for of_paper in grouped(findings, lambda finding: finding.claim.paper):
        notes = []
        for alike in grouped(of_paper, lambda finding: finding.row.reason):
            texts = [f"{alike[0].row.reason}:"]
            for claim, _, metrics, *_ in alike:
                text = f"· {claim.text}"
                if len(metrics) < len(claim.metric):
                    text += f" (only {', '.join(metrics)})"
                texts.append(text)
            notes.append(Footnote("\n".join(texts)))
        cite = of_paper[0].claim.paper.cite
        title = f"Claims that are not measured · {cite} · {len(of_paper)}"
        yield Table(title=title, footnotes=tuple(notes))
