"""Figures of the golden store: texts within the figure and apart from one another, colours by
model.
"""

import itertools
import shutil
from pathlib import Path

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex

from jembench import drawing
from jembench.report.figures import planning
from jembench.report.layout import Report
from jembench.store.store import Store

STORE = Path(__file__).parents[2] / "golden" / "store.tar.xz"

STEMS = [
    "auroc-digits-s0",
    "joint-digits",
    "ood-grid-digits-s0",
    "reliability-compared-digits-s0",
    "seeds-ood-digits",
    "training-loss-digits",
    "training-validation-nll-digits",
]
"""Figures with the longest names, labels and ticks, and with the fewest points."""

ONE_PIXEL = 1


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("golden") / "runs"
    shutil.unpack_archive(STORE, folder)
    store = Store(folder)
    return Report(store.cells(), read=store.read_arrays), store


@pytest.fixture(scope="module")
def figures(report):
    return {one.stem: one for one in planning.figures(*report, lambda problem: None)}


def texts_of(figure):
    """Yield each text that is shown, with the group within which texts may not touch, and its box
    in pixels.
    """
    FigureCanvasAgg(figure).draw()
    for axes in [axes for axes in figure.axes if axes.axison]:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in axis.get_major_ticks():
                if low <= tick.get_loc() <= high and tick.label1.get_visible():
                    yield axis, tick.label1
            yield figure, axis.label
        for title in (axes.title, axes._left_title, axes._right_title):
            yield figure, title
        for text in axes.texts:
            yield None, text
    for legend in figure.legends:
        for text in legend.get_texts():
            yield figure, text
    for text in filter(None, [figure._suptitle]):
        yield figure, text


def flaws_of(figure):
    """Yield a sentence for each text that is cut off or overlaps with another one."""
    boxes = [
        (group, text.get_text(), text.get_window_extent())
        for group, text in texts_of(figure)
        if text.get_text()
    ]
    for _, text, box in boxes:
        if (
            min(box.x0, box.y0) < -ONE_PIXEL
            or box.x1 > figure.bbox.x1 + ONE_PIXEL
            or box.y1 > figure.bbox.y1 + 1
        ):
            yield f"{text!r} is cut off"
    for (group, text, box), (other_group, other_text, other) in itertools.combinations(boxes, 2):
        if (
            group is other_group
            and group is not None
            and box.padded(-ONE_PIXEL).overlaps(other.padded(-ONE_PIXEL))
        ):
            yield f"{text!r} overlaps with {other_text!r}"


@pytest.mark.parametrize("width", [None, drawing.COLUMN])
def test_no_text_is_cut_off_or_overlaps(figures, width):
    flaws = []
    with drawing.styled(drawing.Style(width)):
        for stem in STEMS:
            flaws += [f"{stem}: {flaw}" for flaw in flaws_of(figures[stem].draw().figure)]
    assert not flaws, "\n".join(flaws)


def test_no_text_of_other_metrics_is_cut_off_or_overlaps(planned):
    flaws, kinds = [], {stem.partition("-digits")[0]: stem for stem in reversed(planned)}
    with drawing.styled(drawing.Style(drawing.COLUMN)):
        for stem in kinds.values():
            flaws += [f"{stem}: {flaw}" for flaw in flaws_of(planned[stem].draw().figure)]
    assert not flaws, "\n".join(flaws)


def colours_of(figure):
    """Return the colour of each name in the legend, or of each name beside the vertical axis."""
    axes = figure.axes[0]
    handles, labels = axes.get_legend_handles_labels()
    lines = [getattr(handle, "lines", [handle])[0] for handle in handles]
    if not labels:  # strips of seeds: a row of points for each name
        labels = [label.get_text() for label in axes.get_yticklabels()]
        lines = [line for line in axes.lines if line.get_marker() in drawing._MARKERS]
    names = ["".join(label.split()) for label in labels]  # which are wrapped
    return dict(zip(names, (to_hex(line.get_color()) for line in lines), strict=True))


def test_a_model_has_one_colour_in_all_figures(figures):
    found = {}
    for stem in (
        "auroc-digits-s0",
        "seeds-ood-digits",
        "training-loss-digits",
        "training-energy-digits",
    ):
        for name, colour in colours_of(figures[stem].draw().figure).items():
            found.setdefault(name, {})[stem] = colour
    # the last figure has no baseline, the second no Glow
    assert len(found["jem(digits-validation)"]) == 4
    assert len(found["baseline(digits-validation)"]) == 3
    assert all(len(set(colours.values())) == 1 for colours in found.values())
    of_models = [
        next(iter(colours.values()))
        for name, colours in found.items()
        if name not in ("data", "samples")
    ]
    assert len(set(of_models)) == len(of_models) == 7
