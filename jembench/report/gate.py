"""A gate: which values are worse than others, the outcomes of verdicts, and the exit code.

A value is worse if its loss is significant and above the tolerance. It is no worse if the intervals
of the difference exclude a loss above the tolerance, and undecided otherwise.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from jembench.errors import SpecError
from jembench.experiment.names import NO_NAMES, DisplayNames
from jembench.report import claims
from jembench.report.claims import Finding, Outcome
from jembench.report.comparison import LEVEL, Difference
from jembench.report.differences import Line, legend, recipes_text, table, value_name
from jembench.report.formats import Document
from jembench.report.reproduction import TIMES
from jembench.report.rows import grouped
from jembench.report.select import select
from jembench.report.table import NOTES

_OUTCOMES: Mapping[str, Outcome] = {
    "equal": "passed",
    "no worse": "passed",
    "undecided": "undecided",
    "worse": "failed",
    "not judged": "skipped",
}
"""The outcomes of verdicts; values with other verdicts could not be judged."""

FIELDS = ("name", *claims.CLAIM_FIELDS, "outcome")
"""The columns of the CSV."""


def tolerances(stated: Mapping[str, float], labels: Iterable[str]) -> dict[str, float]:
    """Return the stated tolerances by label.

    Args:
        stated: tolerances by columns, as :func:`jembench.report.select.select` understands them.
        labels: of all values.

    Raises:
        SpecError: if a text names no column.
    """
    columns = list(dict.fromkeys(labels))
    by_label: dict[str, float] = {}
    for text, tolerance in stated.items():
        by_label |= dict.fromkeys(select("column", [text], columns, str), tolerance)
    return by_label


def unjudged(row: Difference) -> str:
    """Return why a difference is neither good nor bad, or ""."""
    if not row.better:
        return "neither higher nor lower is better"
    return "times vary by machine" if row.unit in TIMES else ""


def judged(rows: Iterable[Difference], tolerance: Mapping[str, float]) -> list[Difference]:
    """Return differences with the verdicts on whether the first value is worse.

    Args:
        rows: with p values after Holm.
        tolerance: the largest losses that pass, by label.

    Raises:
        SpecError: if a tolerance lets every value pass.
    """
    verdicts = []
    for row in rows:
        reason = unjudged(row)
        if reason and row.verdict not in ("equal", "missing"):
            row = replace(row, verdict="not judged", reason=reason)
        elif row.p is not None:
            row = replace(row, verdict=_verdict(row, row.p, tolerance.get(row.label, 0.0)))
        verdicts.append(row)
    return verdicts


def _verdict(row: Difference, p: float, tolerance: float) -> str:
    """Return whether a tested value is worse; undecided: its intervals reach such a loss."""
    lowest, highest = row.images.within
    if tolerance >= highest - lowest:
        raise SpecError(
            f"The tolerance {row.label}={tolerance:g} lets every value pass: {row.label} lies "
            f"between {lowest:g} and {highest:g}. Give a smaller one, in the unit of the tables."
        )
    ends = (row.images.low, row.images.high, row.training.low, row.training.high)
    losses = [-end for end in (row.difference, *ends) if end is not None]
    if row.better == "lower":
        losses = [-loss for loss in losses]
    most = tolerance * (1 + 1e-9)  # but for rounding
    if p < LEVEL and losses[0] > most:
        return "worse"
    return "undecided" if max(losses) > most else "no worse"


# --- for people and for programs ------------------------------------------------------------------


def document(
    rows: Sequence[Difference],
    findings: Sequence[Finding] = (),
    *,
    sides: Sequence[str] = ("now", "baseline"),
    names: DisplayNames = NO_NAMES,
    tolerance: Mapping[str, float] = MappingProxyType({}),
    strict: bool = False,
) -> Document:
    """Return verdicts, with a table for each model, a summary and an exit code.

    Args:
        rows: differences, :func:`judged`.
        findings: the verdicts on claims.
        sides: the headings of both values.
        names: display names.
        tolerance: as stated.
        strict: True if what is undecided fails.
    """
    records: list[dict[str, Any]] = []
    for row in rows:
        name = f"{row.label or row.metric} of {_model(row, names)}"
        outcome = _OUTCOMES.get(row.verdict, "error")
        records.append({"name": name, **row.as_dict(), "outcome": outcome})
    for finding in findings:
        name = f"the claim {finding.claim.id.rpartition('/')[-1]}"
        outcome = finding.outcome
        records.append({"name": name, **claims.record(finding), "outcome": outcome})
    for record in records:
        if strict and record["outcome"] == "undecided":
            record["outcome"] = "failed"

    stated = ", ".join(f"{column} {number:g}" for column, number in tolerance.items())
    notes = list(legend(rows))
    if notes:
        notes.append(NOTES["gate"].format(stated or "none"))
    groups = grouped(rows, lambda row: (row.dataset, row.a.model, row.a.recipe))
    tables = []
    for group in groups:
        first = group[0]
        recipes = recipes_text(first.a.recipe, first.b.recipe)
        title = f"Check of {_model(first, names)} · dataset {first.dataset} · {recipes}"
        lines = [Line((value_name(row, group),), row, (row.reason,)) for row in group]
        below = notes if group is groups[-1] else ()
        tables.append(table(title, ["value"], sides, lines, *below))

    code = exit_code([record["outcome"] for record in records])
    return Document(
        [*tables, *claims.tables(findings)],
        records,
        FIELDS,
        level=LEVEL,
        tolerance=dict(tolerance),
        strict=strict,
        summary=f"{_summary(records)}. The exit code is {code}.",
        exit_code=code,
    )


def exit_code(outcomes: Sequence[Outcome]) -> int:
    """Return 1 if one failed, 2 if one or all could not be judged, else 0."""
    if "failed" in outcomes:
        return 1
    is_judged = "passed" in outcomes or "undecided" in outcomes
    return 0 if is_judged and "error" not in outcomes else 2


def some(names: Sequence[str], most: int = 5) -> str:
    """Return the first names, and the number of further ones."""
    if len(names) > most:
        names = [*names[:most], f"and {len(names) - most} more"]
    return ", ".join(names)


def _summary(records: Sequence[Mapping[str, Any]]) -> str:
    """Return the counts of outcomes, with the names of what did not pass."""
    parts = []
    for outcome, words in _IN_WORDS.items():
        names = [record["name"] for record in records if record["outcome"] == outcome]
        if names and outcome in ("failed", "error"):
            parts.append(f"{len(names)} {words} ({some(names)})")
        elif names:
            parts.append(f"{len(names)} {words}")
    return ", ".join(parts) or "Nothing to judge"


_IN_WORDS: Mapping[Outcome, str] = {
    "failed": "failed",
    "error": "could not be judged",
    "undecided": "undecided",
    "passed": "passed",
    "skipped": "not judged",
}


def _model(row: Difference, names: DisplayNames) -> str:
    """Return the display name of a row's model."""
    return names.model(row.a.model or "", row.a.recipe or "")
