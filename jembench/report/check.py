"""The check of results against a baseline: which values are worse, and which claims fail.

A value is worse if its difference from the baseline's value is significant by the tests of
:mod:`jembench.report.comparison`, is on the worse side, and is larger than the tolerance.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

from jembench.experiment.names import NO_NAMES, DisplayNames
from jembench.report import claims, comparison, differences, gate
from jembench.report.claims import Finding
from jembench.report.comparison import LEVEL, Difference, Read
from jembench.report.differences import Comparison, Line, legend, table, value_name
from jembench.report.formats import Document
from jembench.report.gate import Outcome, is_worse, loss, outcome_of, tolerances, unjudged
from jembench.report.reproduction import are_equal
from jembench.report.rows import BySeed, Row, grouped, joined, rows, sides
from jembench.report.select import select
from jembench.report.table import NOTES, Table, TableCell
from jembench.store.latest import renamed
from jembench.store.outcome import Cell, Trained


class Measured(NamedTuple):
    """Results of a store, with their per-example values."""

    cells: Sequence[Cell]
    read: Read


class Judged(NamedTuple):
    """A difference, and whether it passes."""

    row: Difference
    outcome: Outcome


def against(
    now: Measured,
    baseline: Measured,
    *,
    tolerance: Mapping[str, float] = MappingProxyType({}),
    columns: Sequence[str] | None = None,
    narrowed: bool = False,
    names: DisplayNames = NO_NAMES,
) -> list[Judged]:
    """Compare every value with the baseline's.

    P values are adjusted by Holm for all compared values.

    Args:
        now: the results.
        baseline: the results that ``now`` must not be worse than.
        tolerance: the largest losses that pass, by columns, in the units of tables.
        columns: labels of the compared values, as for ``select``; None: all.
        narrowed: True to compare only models and metrics of ``now``; False: what ``now`` lacks of
            the baseline is missing.
        names: display names.

    Raises:
        SpecError: if a text names no column.
    """
    matched = _matched(now.cells, baseline.cells)
    # together, so that a failed cell gets the labels of the baseline's values
    every = rows([*matched.now, *matched.baseline], names)
    every = select("column", columns, every, lambda row: row.column)
    tolerance_of = tolerances(tolerance, (row.column for row in every))
    of_baseline = set(map(id, matched.baseline))
    present = [row for row in every if id(row.cell) not in of_baseline]
    before = [row for row in every if id(row.cell) in of_baseline]
    if narrowed:
        kept = {(row.fit, row.metric) for row in present}
        before = [row for row in before if (row.fit, row.metric) in kept]

    def read(cell: Cell) -> Any:
        # by object, since both stores may have a cell of the same id
        return (baseline if id(cell) in of_baseline else now).read(cell)

    gaps = {(row.fit, *row.place, row.seeds[0]): row for row in present if row.value is None}
    values, earlier = sides(present), sides(before)
    compared = []
    for key in dict.fromkeys((*earlier, *values)):
        theirs = earlier.get(key, {})
        failed = [gaps[*key, seed] for seed in theirs if (*key, seed) in gaps]
        row = _difference(values.get(key, {}), theirs, failed, read, tolerance_of(key[-1]))
        remark = matched.remarks.get(key[0], "")
        compared.append(replace(row, reason=joined((row.reason, remark))))

    judged = []
    for row in comparison.adjusted(compared):
        allowed = tolerance_of(row.label)
        outcome = _UNTESTED.get(row.verdict) or outcome_of(row, allowed)
        judged.append(Judged(replace(row, verdict=_verdict(row, allowed)), outcome))
    return judged


class _Matched(NamedTuple):
    """Cells of two stores whose fits have the names of the first store."""

    now: list[Cell]
    baseline: list[Cell]
    remarks: dict[Trained, str]  # on fits that have other names in the baseline


def _matched(now: Sequence[Cell], baseline: Sequence[Cell]) -> _Matched:
    """Give the baseline's fits the names of those that they are compared with.

    A fit is compared with the fit of the same model, dataset and recipe; else with the only one of
    the same name, or the only one on the dataset, if it is the only one here too.
    """
    cells = renamed([*now, *baseline])  # datasets and weights may lie elsewhere
    now, baseline = cells[: len(now)], cells[len(now) :]
    fits = dict.fromkeys(cell.fit.names for cell in now)
    fits_before = dict.fromkeys(cell.fit.names for cell in baseline)
    counterparts: dict[Trained, Trained] = {}
    for key in _KEYS:
        candidates = {key(group[0]): group for group in grouped(fits, key)}
        for group in grouped(fits_before, key):
            alike = candidates.get(key(group[0]), [])
            if len(alike) == len(group) == 1:
                counterparts.setdefault(group[0], alike[0])

    remarks = {}
    for fit, counterpart in counterparts.items():
        if fit != counterpart:
            remarks[counterpart] = f"the baseline's is {fit.model}, recipe {fit.recipe}"
    theirs = []
    for cell in baseline:
        names = counterparts.get(cell.fit.names, cell.fit.names)
        theirs.append(replace(cell, fit=replace(cell.fit, **names._asdict())))
    return _Matched(list(now), theirs, remarks)


_KEYS: tuple[Callable[[Trained], Hashable], ...] = (
    lambda fit: fit,
    lambda fit: (fit.dataset, fit.model.bare),
    lambda fit: fit.dataset,
)
"""What a fit and its counterpart in the baseline share, the most first."""

_UNTESTED: Mapping[str, Outcome] = {"equal": "passed", "missing": "error", "new": "skipped"}
"""The outcomes of values that need no test."""


def _difference(
    own: BySeed, theirs: BySeed, failed: Sequence[Row], read: Read, tolerance: float | None
) -> Difference:
    """Test a value against the baseline's, or say why not.

    Args:
        own: the value by seed.
        theirs: the baseline's.
        failed: the rows without a value of seeds that the baseline has.
        read: gives a cell's per-example values.
        tolerance: of the value; None: not named.
    """
    if not theirs:
        row = comparison.described(own, own)
        return replace(row, seeds=(), verdict="new", reason="the baseline has no such value")
    if failed or not own:
        reasons = {f"seed {row.seeds[0]}: {row.reason or row.status}" for row in failed}
        reason = joined(sorted(reasons)) or "not measured"
        row = comparison.described(theirs, theirs)
        return replace(row, seeds=(), verdict="missing", reason=reason)

    untested = comparison.contrast(own, theirs, None)
    if untested.a.value is None:  # no seed or no protocol in common
        return untested
    untested = replace(
        untested, images=comparison.UNTESTED, training=comparison.UNTESTED, reason=""
    )
    if are_equal(own, theirs):
        return replace(untested, verdict="equal")
    obstacle = unjudged(untested, tolerance)
    if obstacle:
        return replace(untested, verdict="not judged", reason=obstacle)
    row = comparison.contrast(own, theirs, read)
    if own.keys() != theirs.keys():
        common = f"on the seeds that both have: {', '.join(map(str, row.seeds))}"
        row = replace(row, reason=joined((row.reason, common)))
    return row


def _verdict(row: Difference, tolerance: float | None) -> str:
    if row.p is None:
        return row.verdict
    if is_worse(row, tolerance):
        return "worse"
    if row.p >= LEVEL:
        return "no worse"
    return "tolerated" if loss(row, row.difference) > 0 else "better"


# --- for people and for programs ------------------------------------------------------------------


def document(
    judged: Sequence[Judged],
    findings: Sequence[Finding] = (),
    *,
    names: DisplayNames = NO_NAMES,
    tolerance: Mapping[str, float] = MappingProxyType({}),
    strict: bool = False,
) -> Document:
    """Return the verdicts, with a table for each dataset and recipe.

    Args:
        judged: the values beside the baseline's.
        findings: the verdicts on claims.
        names: display names.
        tolerance: as for :func:`against`.
        strict: True if what is undecided fails.
    """
    compared = [row for row, _ in judged]
    stated = ", ".join(f"{column} {number:g}" for column, number in tolerance.items()) or "none"
    notes = [*legend(compared), NOTES["check"].format(stated)]
    groups = grouped(compared, lambda row: (row.dataset, row.a.recipe))
    tables = []
    for group in groups:
        below = notes if group is groups[-1] else ()
        tables.append(_table(group, names, below))
    tables += claims.tables(findings)

    named = [finding.named for finding in findings]
    records = []
    for row, outcome in judged:
        named.append((f"{row.label or row.metric} of {_name(row, names)}", outcome))
        records.append({**row.as_dict(), "outcome": outcome})
    records += map(claims.judged_record, findings)
    return Document(
        tables,
        records,
        FIELDS,
        level=LEVEL,
        tolerance=dict(tolerance),
        strict=strict,
        summary=gate.summary(named, strict=strict),
    )


def of_comparison(
    compared: Comparison, tolerance: Mapping[str, float], *, strict: bool
) -> Document:
    """Return the comparison of two models, as a check that the first is not worse.

    Args:
        compared: the differences.
        tolerance: as for :func:`against`.
        strict: True if what is undecided fails.

    Raises:
        SpecError: if a text names no column.
    """
    tolerance_of = tolerances(tolerance, (row.label for row in compared.rows))
    named = []
    records = []
    for row in compared.rows:
        outcome = outcome_of(row, tolerance_of(row.label))
        named.append((row.label, outcome))
        records.append({**row.as_dict(), "outcome": outcome})
    whole = differences.of_comparison(compared)
    fields = (*whole.fields, "outcome")
    about = {"tolerance": dict(tolerance), "strict": strict}
    summary = gate.summary(named, strict=strict)
    return Document(whole.tables(), records, fields, **whole.about, **about, summary=summary)


FIELDS = (*claims.CLAIM_FIELDS, "outcome")
"""The columns of the CSV."""


def _table(rows: Sequence[Difference], names: DisplayNames, notes: Sequence[str]) -> Table:
    """Return the table of one dataset and recipe."""
    models = list(dict.fromkeys(row.a.model for row in rows))
    lines = []
    for row in rows:
        name = [value_name(row, rows)]
        if len(models) > 1:
            name.insert(0, TableCell(_name(row, names)))
        lines.append(Line(tuple(name), row, (row.reason,)))
    first = rows[0]
    title = f"Check · dataset {first.dataset} · recipe {first.a.recipe}"
    if len(models) > 1:
        return table(title, ["model", "value"], ["now", "baseline"], lines, *notes)
    title = title.replace("Check", f"Check of {_name(first, names)}", 1)
    return table(title, ["value"], ["now", "baseline"], lines, *notes)


def _name(row: Difference, names: DisplayNames) -> str:
    """Return the display name of a row's model."""
    return names.model(row.a.model or "", row.a.recipe or "")
