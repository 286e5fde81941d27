"""A comparison of two models as a table of texts and as records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields

from jembench.report.comparison import HOPELESS, LEVEL, PILOT, SEEDS, Comparison, Difference
from jembench.report.formats import Document
from jembench.report.text import ABSENT, Footnote, Footnotes, Heading, Table, Text, decimals_for, detail, fixed

FIELDS = tuple(field.name for field in fields(Difference))
"""The columns of the CSV."""

OTHER_SEEDS = "other seeds: 95 % interval of the difference if trained anew, by Student's t over the seeds."


def document(comparison: Comparison) -> Document:
    """The comparison for people and for programs."""
    a, b = comparison.pair
    head = {
        "schema": 1,
        "a": {"model": a.model, "dataset": a.dataset, "recipe": a.recipe},
        "b": {"model": b.model, "dataset": b.dataset, "recipe": b.recipe},
        "level": LEVEL,
        "resamples": comparison.resamples,
        "only_a": comparison.only_a,
        "only_b": comparison.only_b,
    }
    records = [asdict(row) for row in comparison.rows]
    return Document(
        tables=lambda: [_table(comparison)],
        content=lambda: {**head, "rows": records},
        records=lambda: records,
        fields=FIELDS,
    )


def _table(comparison: Comparison) -> Table:
    notes = Footnotes()
    labels = [row.label for row in comparison.rows]
    return Table(
        title=_title(comparison),
        headings=(
            Heading("value", identifies=True),
            *(Heading(name) for name in comparison.pair.names),
            Heading("difference", "other images"),
            Heading("difference", "other seeds"),
            Heading("p", "Holm"),
            Heading("verdict"),
        ),
        rows=tuple(_texts(row, comparison, labels.count(row.label) == 1, notes) for row in comparison.rows),
        footnotes=(*_legend(comparison), *notes.take()),
    )


def _title(comparison: Comparison) -> str:
    a, b = comparison.pair
    recipes = f"recipe {a.recipe}" if a.recipe == b.recipe else f"recipes {a.recipe} and {b.recipe}"
    models = a.model if a.model == b.model else f"{a.model} and {b.model}"
    return f"{models} · dataset {a.dataset} · {recipes} · {_seeds(_all_seeds(comparison))}"


def _all_seeds(comparison: Comparison) -> tuple[int, ...]:
    return tuple(sorted({seed for row in comparison.rows for seed in row.seeds}))


def _seeds(seeds: Sequence[int]) -> str:
    return f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds)) or 'none'}"


def _texts(row: Difference, comparison: Comparison, alone: bool, notes: Footnotes) -> tuple[Text, ...]:
    name = row.label if alone else f"{row.label} ({row.metric})"
    fewer = row.seeds and row.seeds != _all_seeds(comparison)
    reasons = (row.reason, f"{_seeds(row.seeds)} alone" if fewer else "")
    verdict = Text(row.verdict, marks=tuple(map(notes.mark, filter(None, reasons))))
    return Text(f"{name} {detail(row.unit, row.better)}".strip()), *numbers(row), verdict


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


def _legend(comparison: Comparison) -> Iterator[Footnote]:
    images = [row for row in comparison.rows if row.images_test]
    if images:
        pilot = f" ({PILOT:,} where p is above {HOPELESS:g})" * (comparison.resamples > PILOT)
        yield Footnote(
            "",
            "other images: 95 % interval of the difference, by the bootstrap: both models see the same "
            f"{comparison.resamples:,} resamples of the images{pilot}.",
        )
    if any(row.training_p is not None for row in comparison.rows):
        yield Footnote("", OTHER_SEEDS)
    if any(row.training_p is None for row in images):
        yield Footnote(
            "", f"Of fewer than {SEEDS} seeds that both have, it is not judged what training anew would change."
        )
    judged = sum(row.p is not None for row in comparison.rows)
    if judged:
        yield Footnote("", _how_judged(images, judged))
    for subject, metrics in zip(comparison.pair, (comparison.only_a, comparison.only_b), strict=True):
        if metrics:
            yield Footnote("", f"Only of {subject.model}, recipe {subject.recipe}: {', '.join(metrics)}.")


def _how_judged(images: Sequence[Difference], judged: int) -> str:
    exact = any(row.images_test == "McNemar" for row in images)
    both = any(row.training_p is not None for row in images)
    return "".join(
        (
            "p: how often chance alone would make such a difference",
            ", by other images or by other seeds, whichever more often" * both,
            "; for accuracy by McNemar's exact test" * exact,
            f"; adjusted by Holm for {judged} values" * (judged > 1),
            f". Below {LEVEL:g} there is a verdict.",
        )
    )
