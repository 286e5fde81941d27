"""How old the chains of a replay buffer are, by the class that the model sees in them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from jembench.report.figures import drawing
from jembench.report.figures.drawing import Drawing, Planned
from jembench.report.figures.results import Arrays, Result, needs

_PERCENTILES = {"p5": 5, "q1": 25, "median": 50, "q3": 75, "p95": 95}


@needs({"ages": "N", "predicted": "N"})
def plan(results: list[Result]) -> Iterator[Planned]:
    """A figure for each model."""
    for result in results:
        yield result.figure("chain-age", ages_by_class, result.title, result.arrays)


def ages_by_class(title: str, arrays: Arrays) -> Drawing:
    """A box for each class: the median, the middle half, and whiskers over the middle 90 %."""
    ages, predicted = arrays["ages"], arrays["predicted"]
    classes = np.unique(predicted).tolist()
    rows = [
        {
            "class": number,
            "chains": int((predicted == number).sum()),
            **{name: float(np.percentile(ages[predicted == number], p)) for name, p in _PERCENTILES.items()},
        }
        for number in classes
    ]
    figure, (axes,) = drawing.panels(drawing.COLUMN if len(classes) <= 20 else drawing.PAGE, 2.4, title)
    stats = {"whislo": "p5", "q1": "q1", "med": "median", "q3": "q3", "whishi": "p95"}
    axes.bxp(
        [{name: row[field] for name, field in stats.items()} for row in rows],
        positions=range(len(classes)),
        widths=0.6,
        patch_artist=True,
        showfliers=False,
        boxprops={"facecolor": drawing.SKY, "linewidth": 0.6},
        whiskerprops={"linewidth": 0.6},
        capprops={"linewidth": 0.6},
        medianprops={"color": drawing.VERMILLION, "linewidth": 1.2},
        manage_ticks=False,
    )
    axes.set_xticks(range(len(classes)), [str(number) for number in classes])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("class that the model sees")
    axes.set_ylabel("age of chains, steps")
    return Drawing(figure, rows)
