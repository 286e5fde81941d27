"""A comparison of two models as a table of texts and as records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from jembench.report.comparison import HOPELESS, LEVEL, PILOT, SEEDS, Chance, Compared, Comparison, Contrast
from jembench.report.formats import Document
from jembench.report.record import protocol_differences
from jembench.report.text import ABSENT, Footnote, Footnotes, Heading, Table, Text, decimals_for, detail, fixed

OF_DIFFERENCE = (
    *("model_a", "model_b", "dataset", "recipe_a", "recipe_b", "seeds", "a", "b", "difference"),
    *("images_low", "images_high", "images_p", "images_test"),
    *("training_low", "training_high", "training_p"),
    "p",
)
"""The columns of the CSV. ``images``: on other test images; ``training``: trained anew; ``p``: after Holm."""

FIELDS = ("metric", "label", "unit", "better", *OF_DIFFERENCE, "verdict", "reason", "protocols")


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
    records = [_record(row, comparison) for row in comparison.rows]
    return Document(
        tables=lambda: [_table(comparison)],
        content=lambda: {**head, "rows": records},
        records=lambda: records,
        fields=FIELDS,
    )


# --- for people -------------------------------------------------------------------------------------------------------


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
    if a.model == b.model:
        return f"{a.model} · dataset {a.dataset} · {recipes} · {_seeds(_all_seeds(comparison))}"
    return f"{a.model} and {b.model} · dataset {a.dataset} · {recipes} · {_seeds(_all_seeds(comparison))}"


def _all_seeds(comparison: Comparison) -> tuple[int, ...]:
    return tuple(sorted({seed for row in comparison.rows if row.contrast for seed in row.contrast.seeds}))


def _seeds(seeds: Sequence[int]) -> str:
    return f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds)) or 'none'}"


def _texts(row: Compared, comparison: Comparison, alone: bool, notes: Footnotes) -> tuple[Text, ...]:
    name = row.label if alone else f"{row.label} ({row.metric})"
    scale = detail(row.unit, row.better)
    first = Text(f"{name} {scale}" if scale else name)
    found = row.contrast
    if found is None:
        return first, *(Text(ABSENT) for _ in range(5)), Text(row.verdict, marks=_why(row, comparison, notes))
    fewer = found.seeds != _all_seeds(comparison)
    marks = (*_why(row, comparison, notes), *((notes.mark(f"{_seeds(found.seeds)} alone"),) if fewer else ()))
    return first, *numbers(found), Text(p_text(row.p)), Text(verdict(row, comparison), marks=marks)


def numbers(found: Contrast) -> tuple[Text, Text, Text, Text]:
    """Both values, and their difference with either interval: digits as the narrower one allows."""
    chances = [chance for chance in (found.images, found.training) if chance]
    half = min(((chance.high - chance.low) / 2 for chance in chances), default=None)
    decimals = decimals_for(found.value if found.value else found.a, half)
    a, b, difference = (fixed(number, decimals) for number in (found.a, found.b, found.value))
    return Text(a), Text(b), Text(difference, interval(found.images)), Text(interval(found.training) or ABSENT)


def interval(chance: Chance | None) -> str:
    """The interval of a difference."""
    if chance is None:
        return ""
    decimals = decimals_for(chance.low, (chance.high - chance.low) / 2)
    return f"[{fixed(chance.low, decimals)}, {fixed(chance.high, decimals)}]"


def p_text(p: float | None) -> str:
    """A p value with two significant digits, and none below .001."""
    if p is None:
        return ABSENT
    return "< 0.001" if p < 0.001 else fixed(p, decimals_for(p, p) if p < 0.995 else 0)


def verdict(row: Compared, comparison: Comparison) -> str:
    """The verdict in words: ``jem better``."""
    names = dict(zip(("a", "b"), comparison.pair.names, strict=True))
    if row.verdict not in names:
        return row.verdict
    return f"{names[row.verdict]} {'better' if row.better else 'higher'}"


def _why(row: Compared, comparison: Comparison, notes: Footnotes) -> tuple[str, ...]:
    reason = _reason(row, comparison)
    return (notes.mark(reason),) if reason else ()


def _reason(row: Compared, comparison: Comparison) -> str:
    if row.verdict != "not comparable":
        return row.reason
    parts = protocol_differences(row.protocols)
    return f"measured under different protocols: {'; '.join(parts)}"


def _legend(comparison: Comparison) -> Iterator[Footnote]:
    found = [row.contrast for row in comparison.rows if row.contrast]
    if any(one.images for one in found):
        pilot = f" ({PILOT:,} where p is above {HOPELESS:g})" * (comparison.resamples > PILOT)
        yield Footnote(
            "",
            "other images: 95 % interval of the difference, by the bootstrap: both models see the same "
            f"{comparison.resamples:,} resamples of the images{pilot}.",
        )
    if any(one.training for one in found):
        yield Footnote(
            "", "other seeds: 95 % interval of the difference if trained anew, by Student's t over the seeds."
        )
    if any(one.images and not one.training for one in found):
        yield Footnote(
            "", f"Of fewer than {SEEDS} seeds that both have, it is not judged what training anew would change."
        )
    judged = sum(row.p is not None for row in comparison.rows)
    if judged:
        yield Footnote("", _how_judged(found, judged))
    for subject, metrics in zip(comparison.pair, (comparison.only_a, comparison.only_b), strict=True):
        if metrics:
            yield Footnote("", f"Only of {subject.model}, recipe {subject.recipe}: {', '.join(metrics)}.")


def _how_judged(found: Sequence[Contrast], judged: int) -> str:
    exact = any(one.images and one.images.test == "McNemar" for one in found)
    both = any(one.images and one.training for one in found)
    return "".join(
        (
            "p: how often chance alone would make such a difference",
            ", by other images or by other seeds, whichever more often" * both,
            "; for accuracy by McNemar's exact test" * exact,
            f"; adjusted by Holm for {judged} values" * (judged > 1),
            f". Below {LEVEL:g} there is a verdict.",
        )
    )


# --- for programs -----------------------------------------------------------------------------------------------------


def _record(row: Compared, comparison: Comparison) -> dict[str, Any]:
    a, b = comparison.pair
    return {
        "metric": row.metric,
        "label": row.label,
        "unit": row.unit,
        "better": row.better,
        "model_a": a.model,
        "model_b": b.model,
        "dataset": a.dataset,
        "recipe_a": a.recipe,
        "recipe_b": b.recipe,
        **of_contrast(row.contrast),
        "p": row.p,
        "verdict": verdict(row, comparison),
        "reason": _reason(row, comparison),
        "protocols": list(row.protocols),
    }


def of_contrast(found: Contrast | None) -> dict[str, Any]:
    """Its part of a record; what is not known is None."""
    images, training = (found.images, found.training) if found else (None, None)
    return {
        "seeds": list(found.seeds) if found else [],
        "a": found.a if found else None,
        "b": found.b if found else None,
        "difference": found.value if found else None,
        **_of_chance("images", images),
        "images_test": images.test if images else None,
        **_of_chance("training", training),
    }


def _of_chance(name: str, chance: Chance | None) -> dict[str, Any]:
    low, high, p = chance[:3] if chance else (None, None, None)
    return {f"{name}_low": low, f"{name}_high": high, f"{name}_p": p}
