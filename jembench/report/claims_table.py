"""The findings on the papers' claims as tables of texts and as records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple

from jembench.report.claims import Paper
from jembench.report.comparison import LEVEL, SEEDS, Difference
from jembench.report.comparison_table import FIELDS as DIFFERENCE
from jembench.report.comparison_table import OTHER_SEEDS, numbers
from jembench.report.formats import Document
from jembench.report.judging import Finding
from jembench.report.record import grouped
from jembench.report.text import Footnote, Footnotes, Heading, Table, Text

_ELSEWHERE = ("metric", "label", "unit", "better", "verdict", "reason", "protocols")  # in FIELDS, or left out
FIELDS = (
    *("claim", "text", "source", "verdict", "metric", "label", "direction", "within"),
    *(field for field in DIFFERENCE if field not in _ELSEWHERE),
    "reason",
)
"""The columns of the CSV."""


def document(found: Sequence[Finding]) -> Document:
    """The claims for people, a table for each paper, and for programs."""
    records = [_record(finding) for finding in found]
    content = {"schema": 1, "level": LEVEL, "claims": records}
    return Document(tables=lambda: _tables(found), content=lambda: content, records=lambda: records, fields=FIELDS)


def _tables(found: Sequence[Finding]) -> list[Table]:
    notes = Footnotes()
    measured = grouped((f for f in found if f.row.dataset), lambda finding: finding.claim.paper)
    tables = [_table(of_paper[0].claim.paper, of_paper, found, notes) for of_paper in measured]
    if tables:
        tables[-1] = replace(
            tables[-1], footnotes=(*tables[-1].footnotes, *(Footnote("", text) for text in _legend(found)))
        )
    return [*tables, *_not_measured([finding for finding in found if not finding.row.dataset])]


def _table(paper: Paper, of_paper: Sequence[Finding], everything: Sequence[Finding], notes: Footnotes) -> Table:
    measured = [finding.row for finding in everything if finding.row.dataset]
    several = _Several(len({row.dataset for row in measured}) > 1, len({row.recipe_a for row in measured}) > 1)
    return Table(
        title=f"Claims · {paper.cite}",
        headings=(
            Heading("claim", identifies=True),
            Heading("verdict", identifies=True),
            Heading("ours"),
            Heading("than"),
            Heading("difference", "other images"),
            Heading("difference", "other seeds"),
            Heading("p", "Holm"),
        ),
        rows=tuple(_texts(finding, several, notes) for finding in of_paper),
        footnotes=(Footnote("", ", ".join(filter(None, (paper.title, paper.url)))), *notes.take()),
    )


class _Several(NamedTuple):
    """Of what there is more than one, so that it must be said."""

    datasets: bool
    recipes: bool


def _texts(finding: Finding, several: _Several, notes: Footnotes) -> tuple[Text, ...]:
    claim = finding.claim
    text = Text(" · ".join((claim.text, *_context(finding, several))), marks=(notes.mark(claim.where),))
    verdict = Text(finding.row.verdict, marks=tuple(map(notes.mark, _caveats(finding.row))))
    return text, verdict, *numbers(finding.row)


def _context(finding: Finding, several: _Several) -> Iterator[str]:
    """What a claim does not say itself: which of several values, models, datasets and recipes this is."""
    row = finding.row
    if finding.claim.each:
        yield row.metric
    yield from dict.fromkeys(model for model in (row.model_a, row.model_b or "") if ":" in model)
    if several.datasets and row.dataset:
        yield row.dataset
    if several.recipes or row.recipe_a != row.recipe_b:
        same = row.recipe_a == row.recipe_b
        yield f"recipe {row.recipe_a}" if same else f"recipes {row.recipe_a} and {row.recipe_b}"


def _caveats(row: Difference) -> Iterator[str]:
    if row.reason:
        yield row.reason
    if row.images_test and row.training_p is None:
        seeds = ", ".join(map(str, row.seeds))
        yield f"of seed {seeds} alone: from {SEEDS} seeds on it is judged what training anew would change"


def _not_measured(found: Sequence[Finding]) -> Iterator[Table]:
    """What there is to do, and for which claims."""
    claims: dict[str, list[str]] = {}
    for finding in found:
        claim = finding.claim
        part = f"; only {', '.join(finding.each)}" if finding.each else ""
        claims.setdefault(finding.row.reason, []).append(f"{claim.text} ({claim.paper.cite}, {claim.where}{part})")
    notes = tuple(Footnote("", f"{reason}: {'; '.join(texts)}.") for reason, texts in claims.items())
    if notes:
        yield Table(title=f"Claims that are not measured · {len(found)}", headings=(), rows=(), footnotes=notes)


def _legend(found: Sequence[Finding]) -> Iterator[str]:
    counted = Counter(finding.row.verdict for finding in found)
    yield f"In all: {', '.join(f'{count} {verdict}' for verdict, count in counted.items())}."
    if any(finding.row.images_test for finding in found):
        yield "other images: 95 % interval of the difference on other test images, by the bootstrap."
    if any(finding.row.training_p is not None for finding in found):
        yield OTHER_SEEDS
    judged = sum(finding.row.p is not None for finding in found)
    if judged:
        yield (
            "held, not held: chance alone, by other images or by other seeds, would make such a difference with a "
            f"probability p below {LEVEL:g}, adjusted by Holm for {judged} findings; inconclusive: it might."
        )


def _record(finding: Finding) -> dict[str, Any]:
    claim = finding.claim
    record = {
        **asdict(finding.row),
        "claim": claim.id,
        "text": claim.text,
        "source": ", ".join(filter(None, (claim.paper.cite, claim.where, claim.paper.url))),
        "direction": claim.direction if claim.metric else None,
        "within": claim.within,
    }
    return {field: record[field] for field in FIELDS}
