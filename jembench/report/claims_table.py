"""The findings on the papers' claims as tables of texts and as records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from jembench.report.claims import Paper
from jembench.report.comparison import LEVEL, SEEDS
from jembench.report.comparison_table import OF_DIFFERENCE, interval, numbers, of_contrast, p_text
from jembench.report.formats import Document
from jembench.report.judging import Finding
from jembench.report.record import grouped
from jembench.report.text import ABSENT, Footnote, Footnotes, Heading, Table, Text

FIELDS = (
    *("claim", "text", "source", "verdict", "metric", "label", "direction", "within"),
    *OF_DIFFERENCE,
    "reason",
)
"""The columns of the CSV."""


def document(found: Sequence[Finding]) -> Document:
    """The claims for people, a table for each paper, and for programs."""
    records = [_record(finding) for finding in found]
    content = {"schema": 1, "level": LEVEL, "claims": records}
    return Document(tables=lambda: _tables(found), content=lambda: content, records=lambda: records, fields=FIELDS)


# --- for people -------------------------------------------------------------------------------------------------------


def _tables(found: Sequence[Finding]) -> list[Table]:
    notes = Footnotes()
    measured = grouped((f for f in found if f.verdict != "not measured"), lambda finding: finding.claim.paper)
    tables = [_table(of_paper[0].claim.paper, of_paper, found, notes) for of_paper in measured]
    if tables:
        tables[-1] = replace(tables[-1], footnotes=(*tables[-1].footnotes, *_legend(found)))
    return [*tables, *_not_measured([finding for finding in found if finding.verdict == "not measured"])]


def _table(paper: Paper, of_paper: Sequence[Finding], everything: Sequence[Finding], notes: Footnotes) -> Table:
    pairs = [finding.pair for finding in everything if finding.pair]
    several = _Several(len({pair.a.dataset for pair in pairs}) > 1, len({pair.a.recipe for pair in pairs}) > 1)
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
    verdict = Text(finding.verdict, marks=tuple(map(notes.mark, _caveats(finding))))
    if finding.contrast is None:
        return text, verdict, *(Text(ABSENT) for _ in range(5))
    return text, verdict, *numbers(finding.contrast), Text(p_text(finding.p))


def _context(finding: Finding, several: _Several) -> Iterator[str]:
    """What a claim does not say itself: which of several values, models, datasets and recipes this is."""
    if finding.pair is None:
        return
    if finding.claim.each:
        yield finding.metric
    a, b = finding.pair
    yield from dict.fromkeys(subject.model for subject in (a, b) if ":" in subject.model)
    if several.datasets:
        yield a.dataset
    if several.recipes or a.recipe != b.recipe:
        yield f"recipe {a.recipe}" if a.recipe == b.recipe else f"recipes {a.recipe} and {b.recipe}"


def _caveats(finding: Finding) -> Iterator[str]:
    if finding.reason:
        yield _reason(finding)
    found = finding.contrast
    if found and found.images and not found.training:
        seeds = ", ".join(map(str, found.seeds))
        yield f"of seed {seeds} alone: from {SEEDS} seeds on it is judged what training anew would change"


def _reason(finding: Finding) -> str:
    if finding.verdict != "not comparable":
        return finding.reason
    return f"measured under different protocols: {finding.reason}"


def _not_measured(found: Sequence[Finding]) -> Iterator[Table]:
    """What there is to do, and for which claims."""
    claims: dict[str, list[str]] = {}
    for finding in found:
        claim = finding.claim
        part = f"; only {', '.join(finding.each)}" if finding.each else ""
        claims.setdefault(finding.reason, []).append(f"{claim.text} ({claim.paper.cite}, {claim.where}{part})")
    notes = tuple(Footnote("", f"{reason}: {'; '.join(texts)}.") for reason, texts in claims.items())
    if notes:
        yield Table(title=f"Claims that are not measured · {len(found)}", headings=(), rows=(), footnotes=notes)


def _legend(found: Sequence[Finding]) -> Iterator[Footnote]:
    return (Footnote("", text) for text in _sentences(found))


def _sentences(found: Sequence[Finding]) -> Iterator[str]:
    contrasts = [finding.contrast for finding in found if finding.contrast]
    counted = Counter(finding.verdict for finding in found)
    yield f"In all: {', '.join(f'{count} {verdict}' for verdict, count in counted.items())}."
    if any(interval(one.images) for one in contrasts):
        yield "other images: 95 % interval of the difference on other test images, by the bootstrap."
    if any(one.training for one in contrasts):
        yield "other seeds: 95 % interval of the difference if trained anew, by Student's t over the seeds."
    judged = sum(finding.p is not None for finding in found)
    if judged:
        yield (
            "held, not held: chance alone, by other images or by other seeds, would make such a difference with a "
            f"probability p below {LEVEL:g}, adjusted by Holm for {judged} findings; inconclusive: it might."
        )


# --- for programs -----------------------------------------------------------------------------------------------------


def _record(finding: Finding) -> dict[str, Any]:
    claim, pair = finding.claim, finding.pair
    return {
        "claim": claim.id,
        "text": claim.text,
        "source": ", ".join(filter(None, (claim.paper.cite, claim.where, claim.paper.url))),
        "verdict": finding.verdict,
        "metric": finding.metric,
        "label": finding.label,
        "direction": claim.direction if claim.metric else None,
        "within": claim.within,
        "model_a": pair.a.model if pair else claim.model,
        "model_b": None if isinstance(claim.than, float) else pair.b.model if pair else claim.than,
        "dataset": pair.a.dataset if pair else None,
        "recipe_a": pair.a.recipe if pair else None,
        "recipe_b": pair.b.recipe if pair else None,
        **of_contrast(finding.contrast),
        "p": finding.p,
        "reason": _reason(finding),
    }
