"""The figures of a store, drawn one after the other."""

import sys
from collections.abc import Iterator, Sequence
from itertools import starmap
from typing import TYPE_CHECKING, NamedTuple, get_args

from jembench.drawing import Format, Style, inches
from jembench.errors import JembenchError, error_text, unknown
from jembench.report.select import Selection
from jembench.store.store import Store

if TYPE_CHECKING:
    from jembench.report.figures.base import Planned


class DrawnFile(NamedTuple):
    """A file of a figure: a picture, or its numbers as CSV."""

    name: str
    content: bytes


class LeftOut(NamedTuple):
    """A sentence on a result or a figure that is left out."""

    sentence: str
    is_problem: bool = True  # False: the store is in order
    error: BaseException | None = None  # the exception, if one was raised


def draw_figures(
    store: Store,
    which: Selection,
    *,
    formats: Sequence[Format] = ("png", "svg"),
    only: Sequence[str] = (),
    width: str | None = None,
    titles: bool = True,
) -> Iterator[DrawnFile | LeftOut]:
    """Draw the figures of selected results, and yield their files one by one.

    A ``LeftOut`` comes in between, as soon as it is known.

    Args:
        store: that has the results.
        which: the selection.
        formats: of the pictures.
        only: names of figures, or their beginnings; empty: all figures.
        width: column, page or a length, for all figures; None: each figure's own.
        titles: whether figures have titles.

    Raises:
        SpecError: if there is no such format, width, store, result or figure.
    """
    from jembench.report.figures import planning
    from jembench.report.layout import Report
    from jembench.report.published import published_numbers

    strange = set(formats) - set(get_args(Format))
    if strange:
        raise unknown("image format", min(strange), get_args(Format), "")
    style = Style(None if width is None else inches(width), titles)
    left_out: list[LeftOut] = []

    def leave_out(problem: str) -> None:
        left_out.append(LeftOut(problem, error=sys.exception()))

    store.sweep()
    cells, _, names, sentences = which.of(store, leave_out)
    left_out += [LeftOut(sentence, is_problem=False) for sentence in sentences]
    references = which.suite.references if which.suite else ()
    published = published_numbers(None, references, which.split)
    report = Report(cells, published=published, names=names, read=store.read_arrays)
    planned = _chosen(planning.figures(report, store, leave_out), only)
    yield from left_out
    for figure in planned:
        try:
            files = planning.render(figure, formats, style)
        except Exception as error:  # a figure that cannot be drawn stops no other
            reason = " ".join(error_text(error).split())
            # expected where the dataset's images are not on this machine
            is_problem = bool(only) or not isinstance(error, JembenchError)
            yield LeftOut(f"the figure {figure.stem} cannot be drawn: {reason}", is_problem, error)
        else:
            yield from starmap(DrawnFile, files.items())


def _chosen(planned: Sequence["Planned"], only: Sequence[str]) -> Sequence["Planned"]:
    """Return the figures whose names begin with one of the given words."""
    if not only:
        return planned
    stems = [figure.stem for figure in planned]
    for name in only:
        if not any(f"{stem}-".startswith(f"{name}-") for stem in stems):
            raise unknown("figure of these results", name, stems, "")
    beginnings = tuple(f"{name}-" for name in only)
    return [figure for figure in planned if f"{figure.stem}-".startswith(beginnings)]
