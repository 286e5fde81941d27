"""The figures of a store: those of each metric, and those of training.

The figures of a metric are planned by the function that has the metric's name in the entry-point
group ``jembench.figures``.
"""

from collections.abc import Callable, Mapping, Sequence

from jembench import drawing
from jembench.catalog import discovery
from jembench.drawing import PLAIN, Format, Style
from jembench.errors import JembenchError, error_text
from jembench.experiment.names import DisplayNames
from jembench.report.figures import examples, joint, training, values
from jembench.report.figures.base import Planned, Result, colours_of, display_names, distinct
from jembench.report.formats import csv_text
from jembench.report.layout import Report
from jembench.store.outcome import Cell
from jembench.store.store import Store


def figures(report: Report, store: Store, left_out: Callable[[str], None]) -> list[Planned]:
    """Return every figure of a report and of its trainings.

    Args:
        report: of results.
        store: that has the results.
        left_out: called with a sentence for each result that is damaged and each metric whose
            figures cannot be planned.
    """
    cells = report.cells
    by_id = {cell.fit.id: cell.fit for cell in cells}
    fits = list(by_id.values())
    names = display_names(fits, report.names)
    colours = colours_of(fits, names)
    planned = of_metrics(cells, store, left_out, names, colours)
    planned += training.curves_of(fits, store, left_out, names)
    planned += training.buffers_of(fits, store, names)
    valued = [cell for cell in cells if cell.outcome.status == "ok"]
    measured = [Result(cell, {}, names, colours) for cell in valued]
    planned += values.seeds(measured)
    planned += values.hours(measured)
    planned += examples.plan(measured, store.read_arrays)
    planned += joint.plan(report, names)
    return distinct(planned)


def of_metrics(
    cells: Sequence[Cell],
    store: Store,
    left_out: Callable[[str], None],
    names: DisplayNames,
    colours: Mapping[str, str],
) -> list[Planned]:
    """Return every figure of cells' metrics.

    Metrics without figures are ignored.
    """
    planned = list[Planned]()
    for component in discovery.components("figures"):
        results = []
        for cell in cells:
            if cell.metric.bare != component.name or cell.outcome.status != "ok":
                continue
            try:
                results.append(Result(cell, store.read_arrays(cell), names, colours))
            except JembenchError as error:
                left_out(str(error))
        if not results:
            continue
        try:
            planned += discovery.load(component)(results)
        except Exception as error:  # from a plugin, or by arrays that another version wrote
            left_out(f"the figures of {component.name} cannot be planned: {error_text(error)}")
    return distinct(planned)


def render(planned: Planned, formats: Sequence[Format], style: Style = PLAIN) -> dict[str, bytes]:
    """Draw a figure, and return the contents of its files by their names.

    The files are a picture in each format and the CSV.

    The same numbers give the same bytes: no file says when it was made.
    """
    with drawing.styled(style):
        figure, rows = planned.draw()
        files = {f"{planned.stem}.{format}": drawing.encoded(figure, format) for format in formats}
    files[f"{planned.stem}.csv"] = csv_text(list(rows[0]), rows).encode()
    return files
