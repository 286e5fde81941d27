"""Risk-coverage curves: errors that are left without the least confident images.

Traub et al. (2024), arXiv:2407.01032, Figure 1.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from jembench import drawing
from jembench.report.figures.base import Drawing, Planned, Result, figure_of, rows_of
from jembench.report.rows import grouped
from jembench_energy_ood.selective import best_curve, curve, ranks_of

_RISKS = ("selective", "generalised")


def plan(results: list[Result]) -> Iterator[Planned]:
    """Plan the curves of all models for each score."""

    def shown_together(result: Result) -> tuple[Any, ...]:
        return result.place, result.protocol_without(("coverage",))

    for group in grouped(results, shown_together):
        yield figure_of(group, f"risk-coverage-{group[0].protocol['score']}", curves, group)


def curves(results: Sequence[Result]) -> Drawing:
    """Draw selective and generalised risk over coverage, a line for each model.

    The optimum is a dotted line.
    """
    title = f"Withdrawn by {results[0].protocol['score']}: {results[0].trained_on}"
    figure, panels = drawing.panels(title, 2.6, 2, 2)
    optimum: dict[str, Any] = {"color": drawing.BLACK, "linestyle": ":", "linewidth": 1}
    rows: list[dict[str, Any]] = []
    for index, result in enumerate(results):
        wrong = ~result.arrays["correct"].astype(bool)
        risks = curve(ranks_of(result.arrays["score"]), wrong)
        best = best_curve(wrong)
        style = {**drawing.line(index, result.colour), "marker": ""}
        first = None if index else "errors withdrawn first"
        for axes, risk in zip(panels, _RISKS, strict=True):
            percent = 100 * getattr(risks, risk)
            axes.plot(risks.coverage, percent, label=result.model, **style)
            least = 100 * getattr(best, risk)
            axes.plot(best.coverage, least, label=first, **optimum)
        columns = {"coverage": risks.coverage}
        for risk in _RISKS:
            columns[f"{risk}_risk"] = getattr(risks, risk)
        rows += rows_of(columns, model=result.model)
    for axes, risk in zip(panels, _RISKS, strict=True):
        axes.set(xlabel="coverage", xlim=(0, 1.01), ylim=(0, None))
        axes.set_ylabel(f"{risk} risk, %")
    drawing.legend_below(figure, panels[0], columns=4)
    return Drawing(figure, rows)
