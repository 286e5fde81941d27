"""Comparisons of two models, and the verdicts on the papers' claims, as tables of texts and as records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields, replace
from typing import Any

from jembench.experiment.claims import Paper
from jembench.report.comparison import HOPELESS, LEVEL, PILOT, SEEDS, Comparison, Difference
from jembench.report.formats import Document, of_records
from jembench.report.judging import Finding
from jembench.report.record import grouped
from jembench.report.text import ABSENT, Footnote, Footnotes, Heading, Table, Text, decimals_for, detail, fixed

FIELDS = tuple(field.name for field in fields(Difference))
CLAIM_FIELDS = ("claim", "text", "source", "direction", "within", *FIELDS)
"""The columns of the CSV of claims."""

_DIFFERENCE = (
    Heading("difference", "other images"),
    Heading("difference", "other seeds"),
    Heading("p", "Holm"),
)
_OTHER_SEEDS = "other seeds: 95 % interval of the difference if trained anew, by Student's t over the seeds."


def of_comparison(comparison: Comparison) -> Document:
    """The comparison for people and for programs."""
    a, b = ({"model": of.model, "dataset": of.dataset, "recipe": of.recipe} for of in comparison.pair)
    records = [asdict(row) for row in comparison.rows]
    return of_records(
        lambda: [_table(comparison)],
        FIELDS,
        records,
        a=a,
        b=b,
        level=LEVEL,
        resamples=comparison.resamples,
        only_a=comparison.only_a,
        only_b=comparison.only_b,
        rows=records,
    )


def _table(comparison: Comparison) -> Table:
    notes = Footnotes()
    labels = [row.label for row in comparison.rows]
    return Table(
        title=_title(comparison),
        headings=(
            Heading("value", identifies=True),
            *(Heading(name) for name in comparison.pair.names),
            *_DIFFERENCE,
            Heading("verdict"),
        ),
        rows=tuple(_texts(row, comparison, labels.count(row.label) == 1, notes) for row in comparison.rows),
        footnotes=notes.take(_legend(comparison)),
    )


def _title(comparison: Comparison) -> str:
    a, b = comparison.pair
    models = a.model if a.model == b.model else f"{a.model} and {b.model}"
    return f"{models} · dataset {a.dataset_name} · {_recipes(a.recipe, b.recipe)} · {_seeds(_all_seeds(comparison))}"


def _recipes(a: str | None, b: str | None) -> str:
    return f"recipe {a}" if a == b else f"recipes {a} and {b}"


def _all_seeds(comparison: Comparison) -> tuple[int, ...]:
    return tuple(sorted({seed for row in comparison.rows for seed in row.seeds}))


def _seeds(seeds: Sequence[int]) -> str:
    return f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds)) or 'none'}"


def _texts(row: Difference, comparison: Comparison, alone: bool, notes: Footnotes) -> tuple[Text, ...]:
    fewer = row.seeds and row.seeds != _all_seeds(comparison)
    reasons = (row.reason, f"{_seeds(row.seeds)} alone" if fewer else "")
    verdict = Text(row.verdict, marks=notes.marks(*reasons))
    return value_name(row, alone=alone), *numbers(row), verdict


def value_name(row: Difference, *, alone: bool) -> Text:
    """What is compared, with its metric where the label is not alone."""
    name = row.label if alone else f"{row.label} ({row.metric})"
    return Text(f"{name} {detail(row.unit, row.better)}".strip())


def numbers(row: Difference) -> tuple[Text, ...]:
    """Both values, their difference with either interval, and p: digits as the narrower interval allows."""
    if row.a is None or row.b is None or row.difference is None:
        return (Text(ABSENT),) * 5
    ends = ((row.images_low, row.images_high), (row.training_low, row.training_high))
    half = min(((high - low) / 2 for low, high in ends if low is not None and high is not None), default=None)
    decimals = decimals_for(row.difference or row.a, half)
    a, b, difference = (fixed(number, decimals) for number in (row.a, row.b, row.difference))
    images, training = (_interval(*both) for both in ends)
    return Text(a), Text(b), Text(difference, images), Text(training or ABSENT), Text(_p_text(row.p))


def _interval(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return ""
    decimals = decimals_for(low, (high - low) / 2)
    return f"[{fixed(low, decimals)}, {fixed(high, decimals)}]"


def _p_text(p: float | None) -> str:
    """A p value with two significant digits, and none below .001."""
    if p is None:
        return ABSENT
    return "< 0.001" if p < 0.001 else fixed(p, decimals_for(p, p) if p < 0.995 else 0)


def _legend(comparison: Comparison) -> Iterator[str]:
    images = [row for row in comparison.rows if row.images_test]
    if images:
        pilot = f" ({PILOT:,} where p is above {HOPELESS:g})" * (comparison.resamples > PILOT)
        yield (
            "other images: 95 % interval of the difference, by the bootstrap: both models see the same "
            f"{comparison.resamples:,} resamples of the images{pilot}."
        )
    if any(row.training_p is not None for row in comparison.rows):
        yield _OTHER_SEEDS
    if any(row.training_p is None for row in images):
        yield f"Of fewer than {SEEDS} seeds that both have, it is not judged what training anew would change."
    judged = sum(row.p is not None for row in comparison.rows)
    if judged:
        yield _how_judged(images, judged)
    for subject, metrics in zip(comparison.pair, (comparison.only_a, comparison.only_b), strict=True):
        if metrics:
            yield f"Only of {subject.model}, recipe {subject.recipe}: {', '.join(metrics)}."


def _how_judged(images: Sequence[Difference], judged: int) -> str:
    exact = any(row.images_test == "McNemar" for row in images)
    both = any(row.training_p is not None for row in images)
    return "".join(
        (
            "p: how often chance alone would make such a difference",
            ", by other images or by other seeds, whichever more often" * both,
            "; for accuracy by McNemar's exact test" * exact,
            f"; adjusted by Holm for {judged} values" * (judged > 1),
            f". Below {LEVEL:g} a difference is seen.",
        )
    )


# --- claims -----------------------------------------------------------------------------------------------------------


def of_claims(found: Sequence[Finding]) -> Document:
    """The claims for people, a table for each paper, and for programs."""
    records = [_record(finding) for finding in found]
    return of_records(lambda: _tables(found), CLAIM_FIELDS, records, level=LEVEL, claims=records)


def _tables(found: Sequence[Finding]) -> list[Table]:
    notes = Footnotes()
    measured = grouped((f for f in found if f.row.dataset), lambda finding: finding.claim.paper)
    tables = [_of_paper(of_paper[0].claim.paper, of_paper, found, notes) for of_paper in measured]
    if tables:
        tables[-1] = replace(tables[-1], footnotes=(*tables[-1].footnotes, *map(Footnote, _claims_legend(found))))
    return [*tables, *_not_measured([finding for finding in found if not finding.row.dataset])]


def _of_paper(paper: Paper, of_paper: Sequence[Finding], everything: Sequence[Finding], notes: Footnotes) -> Table:
    measured = [finding.row for finding in everything if finding.row.dataset]
    several = {field for field in ("dataset", "recipe_a") if len({getattr(row, field) for row in measured}) > 1}
    return Table(
        title=f"Claims · {paper.cite}",
        headings=(
            Heading("claim", identifies=True),
            Heading("verdict", identifies=True),
            Heading("ours"),
            Heading("than"),
            *_DIFFERENCE,
        ),
        rows=tuple(_claim_texts(finding, several, notes) for finding in of_paper),
        footnotes=notes.take([", ".join(filter(None, (paper.title, paper.url)))]),
    )


def _claim_texts(finding: Finding, several: set[str], notes: Footnotes) -> tuple[Text, ...]:
    claim = finding.claim
    text = Text(" · ".join((claim.text, *_context(finding, several))), marks=notes.marks(claim.where))
    verdict = Text(finding.row.verdict, marks=notes.marks(*_caveats(finding.row)))
    return text, verdict, *numbers(finding.row)


def _context(finding: Finding, several: set[str]) -> Iterator[str]:
    """What a claim does not say itself: which of several values, models, datasets and recipes this is."""
    row = finding.row
    if finding.claim.each:
        yield row.metric
    yield from dict.fromkeys(model for model in (row.model_a, row.model_b or "") if ":" in model)
    if "dataset" in several and row.dataset:
        yield row.dataset
    if "recipe_a" in several or row.recipe_a != row.recipe_b:
        yield _recipes(row.recipe_a, row.recipe_b)


def _caveats(row: Difference) -> Iterator[str]:
    if row.reason:
        yield row.reason
    if row.images_test and row.training_p is None:
        seeds = ", ".join(map(str, row.seeds))
        yield f"only seeds: {seeds}; from {SEEDS} seeds on, the effect of training anew is judged too"


def _not_measured(found: Sequence[Finding]) -> Iterator[Table]:
    """What there is to do, and for which claims."""
    claims: dict[str, list[str]] = {}
    for finding in found:
        claim = finding.claim
        part = f"; only {', '.join(finding.each)}" if finding.each else ""
        place = ", ".join(filter(None, (claim.paper.cite, claim.where)))
        claims.setdefault(finding.row.reason, []).append(f"{claim.text} ({place}{part})")
    notes = tuple(Footnote(f"{reason}: {'; '.join(texts)}.") for reason, texts in claims.items())
    if notes:
        yield Table(title=f"Claims that are not measured · {len(found)}", headings=(), rows=(), footnotes=notes)


def _claims_legend(found: Sequence[Finding]) -> Iterator[str]:
    counted = Counter(finding.row.verdict for finding in found)
    yield f"In all: {', '.join(f'{count} {verdict}' for verdict, count in counted.items())}."
    if any(finding.row.images_test for finding in found):
        yield (
            "other images: 95 % interval of the difference on other test images, by the bootstrap, or from the "
            "intervals of both values where a footnote says so."
        )
    if any(finding.row.training_p is not None for finding in found):
        yield _OTHER_SEEDS
    judged = sum(finding.row.p is not None for finding in found)
    if judged:
        adjusted = f", adjusted by Holm for {judged} findings" * (judged > 1)
        yield (
            "p: how often chance alone, by other images or other seeds, would make such a difference"
            f"{adjusted}. Below {LEVEL:g} a claim is held, or the result is against it; otherwise no difference is "
            f"seen. Fewer than {SEEDS} seeds are only for or against it."
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
    }
