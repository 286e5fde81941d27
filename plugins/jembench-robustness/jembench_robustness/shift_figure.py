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
    """Plan the curves of all models on each set that has several severities."""
    shifted = [result for result in results if "severity" in _options(result)]
    for group in grouped(
        shifted,
        lambda result: (
            result.place,
            result.protocol_without(("set", "content", "adapt")),
            _set(result),
        ),
    ):
        if len({_options(result)["severity"] for result in group}) > 1:
            yield figure_of(group, f"shift-{_set(group[0])}", curves, group)


def _options(result: Result) -> dict[str, str]:
    return dict(Spec(result.protocol["set"]).options)


def _set(result: Result) -> str:
    """Return the set without its severity."""
    options = ((name, value) for name, value in _options(result).items() if name != "severity")
    return str(Spec.of(Spec(result.protocol["set"]).name, dict(options)))


def _line(result: Result) -> str:
    """Return the model, with its test-time adaptation."""
    return result.model + (
        f", {Spec(result.protocol['adapt']).name}" if "adapt" in result.protocol else ""
    )


def curves(results: Sequence[Result]) -> Drawing:
    """Draw each value over the severity, a line for each model and adaptation, with intervals."""
    title = (
        f"{_set(results[0])} images, AUROC of {results[0].protocol['score']}: "
        f"{results[0].trained_on}"
    )
    count = max(len(result.values) for result in results)
    figure, panels = drawing.panels(title, 2.4, count, count)
    rows: list[dict[str, Any]] = []
    for index, group in enumerate(grouped(results, _line)):
        points = sorted((int(_options(result)["severity"]), result.values) for result in group)
        severities, model = [severity for severity, _ in points], _line(group[0])
        # there is no AUROC with an adaptation
        for axes, label in zip(panels, points[0][1], strict=False):
            values = [found[label] for _, found in points]
            style = {
                **drawing.line(index, group[0].colour),
                "elinewidth": 0.8,
                "label": model,
                "yerr": error_bars(values),
            }
            axes.errorbar(severities, [value.value for value in values], **style)
            unit = f", {values[0].unit}" if values[0].unit else ""
            axes.set(
                xlabel="severity", ylabel=drawing.beside(in_words(label) + unit), xticks=severities
            )
            rows += [
                {"model": model, "severity": severity, "label": label, **value._asdict()}
                for severity, value in zip(severities, values, strict=True)
            ]
    drawing.legend_below(figure, panels[0], columns=4)
    return Drawing(figure, rows)
