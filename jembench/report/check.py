"""Results beside a baseline's: which values are compared, and which are missing."""

import warnings
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

from jembench.catalog.spec import Spec
from jembench.errors import Remark
from jembench.report import comparison, gate
from jembench.report.comparison import Difference, Read, Side
from jembench.report.rows import BySeed, Row, joined, rows, sides
from jembench.report.select import select
from jembench.store.latest import renamed
from jembench.store.outcome import Cell, Trained

_Place = tuple[Trained, Spec, str]
"""The fit, the metric and the label of a value."""


class Measured(NamedTuple):
    """Results of a store, with their per-example values."""

    cells: Sequence[Cell]
    read: Read


def against(
    now: Measured,
    baseline: Measured,
    *,
    tolerance: Mapping[str, float] = MappingProxyType({}),
    columns: Sequence[str] | None = None,
    narrowed: bool = False,
    noted: bool = False,
) -> list[Difference]:
    """Judge every value by the baseline's.

    P values are adjusted by Holm for all compared values.

    Args:
        now: the results.
        baseline: the results that ``now`` must not be worse than.
        tolerance: the largest losses that pass, by columns, in the units of tables.
        columns: labels of the compared values, as for ``select``; None: all.
        narrowed: True to compare only models and metrics of ``now``; False: what ``now`` lacks of
            the baseline is missing.
        noted: True for a remark on what is not compared, since the user has not selected it.

    Raises:
        SpecError: if a text names no column, or a tolerance lets every value pass.
    """
    limits = {cell.limit for cell in now.cells}
    alike = [cell for cell in baseline.cells if cell.limit in limits] or baseline.cells
    cells = renamed([*now.cells, *alike])  # datasets and weights may lie elsewhere
    # by object, since both stores may have a cell of the same id
    of_baseline = set(map(id, cells[len(now.cells) :]))

    def read(cell: Cell) -> Any:
        return (baseline if id(cell) in of_baseline else now).read(cell)

    # together, so that a failed cell gets the labels of the baseline's values
    every = select("column", columns, rows(cells), lambda row: row.column)
    allowed = gate.tolerances(tolerance, (row.column for row in every))
    present = [row for row in every if id(row.cell) not in of_baseline]
    before = [row for row in every if id(row.cell) in of_baseline]

    values = sides(present)
    gaps = {(row.fit, *row.place, row.seeds[0]): row for row in present if row.value is None}
    fits, fits_before = {row.fit for row in present}, {row.fit for row in before}
    earlier: dict[_Place, BySeed] = {}
    for (fit, metric, label), by_seed in sides(before).items():
        earlier[_counterpart(fit, fits, fits_before), metric, label] = by_seed
    if narrowed:
        earlier = _among(earlier, {(row.fit, row.metric) for row in present}, noted=noted)

    compared = []
    for key in dict.fromkeys((*earlier, *values)):
        own, theirs = values.get(key, {}), earlier.get(key, {})
        failed = [gaps[*key, seed] for seed in theirs if (*key, seed) in gaps]
        compared.append(_difference(key[0], own, theirs, failed, read))
    return gate.judged(comparison.adjusted(compared), allowed)


def _counterpart(fit: Trained, now: Collection[Trained], baseline: Collection[Trained]) -> Trained:
    """Return the fit that a baseline's fit is compared with.

    It is the fit of the same model, dataset and recipe; else the only one of the same name, or the
    only one on the dataset, if the baseline has only one too.
    """
    for key in _KEYS:
        alike = [own for own in now if key(own) == key(fit)]
        rivals = [rival for rival in baseline if key(rival) == key(fit)]
        if len(alike) == len(rivals) == 1:
            return alike[0]
    return fit


_KEYS: tuple[Callable[[Trained], Hashable], ...] = (
    lambda fit: fit,
    lambda fit: (fit.dataset, fit.model.bare),
    lambda fit: fit.dataset,
)
"""The fields that a fit and its counterpart share, the most first."""


def _among(
    earlier: Mapping[_Place, BySeed], asked: Collection[tuple[Trained, Spec]], *, noted: bool
) -> dict[_Place, BySeed]:
    """Return the baseline's values of these fits and metrics, and note the others."""
    kept = {}
    left_out = []
    for place, values in earlier.items():
        fit, metric, label = place
        if (fit, metric) in asked:
            kept[place] = values
        else:
            left_out.append(f"{label} of {fit.model}")
    if left_out and noted:
        text = f"The file does not ask for {gate.some(left_out)} of the baseline: not compared."
        warnings.warn(text, Remark, stacklevel=3)
    return kept


def _difference(
    fit: Trained, own: BySeed, theirs: BySeed, failed: Sequence[Row], read: Read
) -> Difference:
    """Test a value against the baseline's, or say why not.

    Args:
        fit: whose value it is.
        own: the value by seed.
        theirs: the baseline's.
        failed: the rows without a value of seeds that the baseline has.
        read: gives a cell's per-example values.
    """
    if not theirs:
        row = comparison.described(own, own)
        return replace(row, verdict="not judged", reason="the baseline has no such value")
    if failed or not own:
        reasons = {f"seed {row.seeds[0]}: {row.reason or row.status}" for row in failed}
        reason = joined(sorted(reasons)) or "not measured"
        row = comparison.described(theirs, theirs)
        row = replace(row, a=Side(fit.model, fit.recipe), verdict="missing", reason=reason)
    else:
        row = comparison.untested(own, theirs)
        is_open = row.difference is not None and row.verdict != "equal"
        if is_open and not gate.unjudged(row):
            row = comparison.contrast(own, theirs, read)

    remarks = [row.reason]
    if row.difference is not None and own.keys() != theirs.keys():
        remarks.append(f"on the seeds that both have: {', '.join(map(str, row.seeds))}")
    if row.a.model != row.b.model:
        remarks.append(f"the baseline's model is {row.b.model}")
    return replace(row, reason=joined(remarks))
