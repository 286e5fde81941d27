"""Outcomes of a gate: which differences pass, and the exit code."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Literal

from jembench.report.comparison import LEVEL, Difference
from jembench.report.reproduction import TIMES
from jembench.report.select import select

Outcome = Literal["passed", "failed", "undecided", "error", "skipped"]
"""The outcome of a verdict: ``error`` could not be judged, ``skipped`` need not be."""


def exit_code(outcomes: Collection[Outcome], *, strict: bool) -> int:
    """Return 0 if all passed, 1 if one failed, 2 if one or all could not be judged.

    Args:
        outcomes: of all that is judged.
        strict: True if ``undecided`` counts as failed.
    """
    ends = {final(outcome, strict=strict) for outcome in outcomes}
    if "failed" in ends:
        return 1
    return 2 if "error" in ends or "passed" not in ends else 0


_IN_WORDS: Mapping[Outcome, str] = {
    "failed": "failed",
    "undecided": "undecided",
    "error": "could not be judged",
    "passed": "passed",
    "skipped": "not judged",
}


NAMED = 5
"""The largest number of values of one outcome that a summary names."""


def summary(named: Sequence[tuple[str, Outcome]], *, strict: bool) -> str:
    """Return a sentence with the counts of outcomes, and the exit code.

    Args:
        named: what is judged, with its outcome.
        strict: as for :func:`exit_code`.
    """
    if not strict:
        named = [(name, final(outcome, strict=False)) for name, outcome in named]
    parts = []
    for outcome, words in _IN_WORDS.items():
        names = [name for name, own in named if own == outcome]
        if not names:
            continue
        part = f"{len(names)} {words}"
        if outcome not in ("passed", "skipped"):
            shown = "; ".join(names[:NAMED])
            more = f"; and {len(names) - NAMED} more" if len(names) > NAMED else ""
            part += f" ({shown}{more})"
        parts.append(part)
    code = exit_code([outcome for _, outcome in named], strict=strict)
    return f"{', '.join(parts) or 'Nothing to judge'}. The exit code is {code}."


def final(outcome: Outcome, *, strict: bool) -> Outcome:
    """Return an outcome, with ``undecided`` as failed or passed."""
    if outcome == "undecided":
        return "failed" if strict else "passed"
    return outcome


def outcome_of(row: Difference, tolerance: float | None) -> Outcome:
    """Return whether a tested value passes.

    The value fails if it is worse. It is undecided if the difference's interval reaches a loss
    above the tolerance.

    Args:
        row: the difference from the value that it must not be worse than.
        tolerance: the largest loss that passes; None: 0, and times are skipped.
    """
    if unjudged(row, tolerance):
        return "skipped"
    if row.p is None:
        return "error"
    if is_worse(row, tolerance):
        return "failed"
    losses = [loss(row, row.difference)]
    for interval in (row.images, row.training):
        losses += [loss(row, end) for end in (interval.low, interval.high)]
    return "undecided" if _exceeds(max(losses), tolerance) else "passed"


def is_worse(row: Difference, tolerance: float | None) -> bool:
    """Return whether a difference is a significant loss above the tolerance."""
    is_seen = row.p is not None and row.p < LEVEL
    return is_seen and _exceeds(loss(row, row.difference), tolerance)


def loss(row: Difference, difference: float | None) -> float:
    """Return a difference as a loss, which is above 0 on the worse side; 0 for None."""
    by = difference or 0.0
    return by if row.better == "lower" else -by


def _exceeds(loss: float, tolerance: float | None) -> bool:
    """Return whether a loss is above the tolerance by more than rounding."""
    allowed = tolerance or 0.0
    return loss > allowed and not math.isclose(loss, allowed, rel_tol=1e-9)


def unjudged(row: Difference, tolerance: float | None) -> str:
    """Return why a difference is neither good nor bad, or ""."""
    if not row.better:
        return "neither higher nor lower is better"
    if row.unit in TIMES and tolerance is None:
        return "times vary by machine; a tolerance has them judged"
    return ""


def tolerances(stated: Mapping[str, float], labels: Iterable[str]) -> Callable[[str], float | None]:
    """Return a function from a value's label to its tolerance, or None.

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
    return by_label.get
