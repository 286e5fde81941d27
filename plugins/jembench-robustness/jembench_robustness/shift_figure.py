"""Shifted test images: accuracy, ECE and AUROC by the severity of corruptions.

Ovadia et al. (2019), arXiv:1906.02530, Figure 2, for accuracy and ECE.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from jembench import drawing
from jembench.catalog.spec import Spec
from jembench.report.figures.base import Drawing, Planned, Result, error_bars, figure_of
from jembench.report.headings import in_words
from jembench.report.rows import grouped


def plan(results: list[Result]) -> Iterator[Planned]:
    """Plan the curves of all models on each set with several severities."""
    shifted = [result for result in results if "severity" in _options(result)]

    def shown_together(result: Result) -> tuple[Any, ...]:
        return result.place, result.protocol_without(("set", "content", "adapt")), _set(result)

    for group in grouped(shifted, shown_together):
        if len({_options(result)["severity"] for result in group}) > 1:
            yield figure_of(group, f"shift-{_set(group[0])}", curves, group)


def _options(result: Result) -> dict[str, str]:
    return dict(Spec(result.protocol["set"]).options)


def _set(result: Result) -> str:
    """Return the set without its severity."""
    options = _options(result)
    options.pop("severity", None)
    return str(Spec.of(Spec(result.protocol["set"]).name, options))


def _line(result: Result) -> str:
    """Return the model, with its test-time adaptation."""
    if "adapt" not in result.protocol:
        return result.model
    return f"{result.model}, {Spec(result.protocol['adapt']).name}"


def curves(results: Sequence[Result]) -> Drawing:
    """Draw each value over the severity, a line per model and adaptation."""
    title = (
        f"{_set(results[0])} images, AUROC of {results[0].protocol['score']}: "
        f"{results[0].trained_on}"
    )
    count = max(len(result.values) for result in results)
    figure, panels = drawing.panels(title, 2.4, count, count)
    rows: list[dict[str, Any]] = []
    for index, group in enumerate(grouped(results, _line)):
        group = sorted(group, key=lambda result: int(_options(result)["severity"]))
        severities = [int(_options(result)["severity"]) for result in group]
        model = _line(group[0])
        # an adapted model has no AUROC, and leaves that panel out
        for axes, label in zip(panels, group[0].values, strict=False):
            values = [result.values[label] for result in group]
            style = {"elinewidth": 0.8, "label": model, "yerr": error_bars(values)}
            style |= drawing.line(index, group[0].colour)
            axes.errorbar(severities, [value.value for value in values], **style)
            unit = f", {values[0].unit}" if values[0].unit else ""
            ylabel = drawing.beside(in_words(label) + unit)
            axes.set(xlabel="severity", ylabel=ylabel, xticks=severities)
            for severity, value in zip(severities, values, strict=True):
                columns = {"model": model, "severity": severity, "label": label}
                rows.append({**columns, **value._asdict()})
    drawing.legend_below(figure, panels[0], columns=4)
    return Drawing(figure, rows)
