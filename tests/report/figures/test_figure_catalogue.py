"""All figures together: which there are, in which colours, as which bytes."""

import csv
import dataclasses
import io
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import SimpleNamespace

import matplotlib
import pytest
from PIL import Image

from jembench import drawing
from jembench.report.figures import planning
from jembench.report.figures.planning import render
from jembench.report.layout import Report

STEMS = {
    "reliability-digits-jem-s0",
    "reliability-digits-jem-s1",
    "reliability-digits-baseline-s0",
    "reliability-digits-baseline-s1",
    "reliability-digits-jem-s0-scaling=temperature",
    "reliability-compared-digits-s0",
    "reliability-compared-digits-s1",
    "ood-max-py-digits-jem-s0",
    "auroc-digits-jem-s0",
    "risk-coverage-max-py-digits-s0",
    "shift-corrupted-digits-s0",
    "samples-digits-jem-s0",
    "confident-digits-jem-s0",
    "log-density-extremes-digits-jem-s0",
    "log-density-by-class-digits-jem-s0",
    "log-density-images-digits-jem-s0",
    "chain-age-digits-jem-s0",
    "chain-drift-digits-jem-s0",
    "density-error-digits-jem-s0",
    "neighbours-digits-jem-s0",
    "neighbours-distances-digits-jem-s0",
    "is-kept-digits-jem-s0",
    "kid-steps-digits-jem-s0",
    "pgd-curves-digits-s0",
    "pgd-images-digits-jem-s0-norm=linf",
    "pgd-images-digits-jem-s0-norm=l2",
    "pgd-images-digits-baseline-s0",
    "pgd-images-digits-jem-s0-eot=5-grad=through-norm=linf-refine=10",
    "autoattack-images-digits-jem-s0",
    "boundary-curves-digits-jem-s0",
    "boundary-images-digits-jem-s0",
    "transfer-curves-digits-jem-s0",
    "transfer-images-digits-jem-s0",
    "distal-digits-jem-s0",
    "joint-digits",
    "training-energy-digits",
    "seeds-ece-digits",
}
PIXELS = {
    "reliability-digits-jem-s0",
    "ood-max-py-digits-jem-s0",
    "samples-digits-jem-s0",
    "pgd-curves-digits-s0",
    "distal-digits-jem-s0",
}
"""One of each kind of drawing: these are drawn as PNG too."""

OKABE_ITO = {"#000000", "#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7"}


@pytest.fixture(scope="module")
def drawn(planned):
    """Draw the first figure of each kind."""
    stems = {stem.partition("-digits")[0]: stem for stem in reversed(planned)}.values()
    formats = {stem: ("png", "svg") if stem in PIXELS else ("svg",) for stem in stems}
    return {stem: render(planned[stem], formats[stem]) for stem in stems}


def test_what_a_store_gives(planned):
    assert set(planned) == STEMS


def test_pictures_and_numbers_can_be_read(drawn):
    for stem, files in drawn.items():
        png = {f"{stem}.png"} if stem in PIXELS else set()
        assert set(files) == {f"{stem}.svg", f"{stem}.csv"} | png
        root = ElementTree.fromstring(files[f"{stem}.svg"])
        width = float(root.get("width").removesuffix("pt")) / 72
        assert width == pytest.approx(drawing.COLUMN) or width == pytest.approx(drawing.PAGE), stem
        for name in png:
            with Image.open(io.BytesIO(files[name])) as picture:
                assert picture.width == pytest.approx(200 * width, abs=1)
                assert picture.info["dpi"] == pytest.approx((200, 200), abs=0.1)
        rows = list(csv.DictReader(io.StringIO(files[f"{stem}.csv"].decode())))
        assert rows, stem


@pytest.mark.parametrize("width", [drawing.COLUMN, drawing.PAGE])
@pytest.mark.parametrize(
    "stem",
    [
        "reliability-compared-digits-s0",
        "log-density-extremes-digits-jem-s0",
        "distal-digits-jem-s0",
        "joint-digits",
    ],
)
def test_every_figure_has_the_width_and_no_title_on_demand(planned, stem, width):
    style = drawing.Style(width, titles=False)
    with drawing.styled(style):
        figure = planned[stem].draw().figure
    assert figure.get_figwidth() == width
    assert figure.get_suptitle() == ""
    used, expected = (
        sum(axes.axison for axes in one.axes) for one in (figure, planned[stem].draw().figure)
    )
    assert used == expected


def test_a_pdf_is_the_same_each_time_and_its_fonts_are_embedded(planned):
    figure = planned["training-energy-digits"]
    one, other = (render(figure, ("pdf",))[f"{figure.stem}.pdf"] for _ in range(2))
    assert one == other
    assert b"CreationDate" not in one
    assert b"FontFile2" in one  # TrueType
    assert b"/Subtype /Type3" not in one


def test_only_colours_that_everybody_can_tell_apart(drawn):
    assert {colour.lower() for colour in drawing.COLOURS} <= OKABE_ITO
    for stem, files in drawn.items():
        svg = re.sub(rb"data:image/png;base64,[^\"]*", b"", files[f"{stem}.svg"]).decode()
        used = set(re.findall(r"#[0-9a-f]{6}\b", svg))
        assert used <= OKABE_ITO | {drawing.WHITE}, stem


def test_the_same_numbers_are_the_same_bytes(planned, drawn):
    for stem in sorted(PIXELS)[:2]:
        assert render(planned[stem], ("png", "svg")) == drawn[stem]
        assert b"<dc:date>" not in drawn[stem][f"{stem}.svg"]


def test_the_user_s_own_settings_of_matplotlib_change_nothing(planned, drawn):
    stem = "reliability-digits-jem-s0"
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red", "savefig.dpi": 50}):
        assert render(planned[stem], ("png", "svg")) == drawn[stem]
        assert matplotlib.rcParams["font.size"] == 30


def test_two_series_differ_without_colour():
    looks = [drawing.look(index)[1:] for index in range(7)]
    assert len({str(look) for look in looks}) == 7


def test_many_series_differ_in_points_and_in_lines():
    looks = [drawing.look(index) for index in range(30)]
    assert len({(look.colour, look.marker) for look in looks}) == 30
    assert len({(look.colour, look.line) for look in looks}) == 30


def store_of(read=lambda cell: {}, history=lambda fit: Path("nowhere")):
    """A store of these arrays and histories, without folders of fits."""
    return SimpleNamespace(
        read_arrays=read, history=history, fit_folder=lambda fit: Path("nowhere") / fit.id
    )


def test_figures_that_cannot_be_planned_stop_no_others(cell, everything):
    (good, arrays), attacked = everything[0], cell("boundary", "boundary:queries=9")
    problems = []
    read = {good.id: arrays, attacked.id: {"index": arrays["confidence"]}}
    found = planning.figures(
        Report([attacked, good]), store_of(lambda cell: read[cell.id]), problems.append
    )
    assert [figure.stem for figure in found] == [
        "boundary-curves-digits-jem-s0",
        "reliability-digits-jem-s0",
    ]
    assert problems == ["the figures of boundary cannot be planned: KeyError: 'found'"]


def test_metrics_of_plugins_and_cells_without_values_have_no_figure(cell):
    failed = cell("ece")
    failed = dataclasses.replace(
        failed, outcome=dataclasses.replace(failed.outcome, status="failed")
    )
    problems = []
    cells = [cell("mypackage.metrics:sharpness", "no: spec"), failed]
    assert list(planning.figures(Report(cells), store_of(), problems.append)) == []
    assert problems == []


def test_two_fits_of_one_name_have_figures_of_two_names(cell, everything):
    arrays = next(arrays for one, arrays in everything if one.metric == "chain-age")
    cells = [cell("chain-age"), cell("chain-age")]
    cells[1] = dataclasses.replace(cells[1], fit=dataclasses.replace(cells[1].fit, id="another"))
    found = planning.figures(Report(cells), store_of(lambda cell: arrays), pytest.fail)
    assert len({figure.stem for figure in found if figure.stem.startswith("chain")}) == 2


def test_a_history_that_is_damaged_is_told(cell, tmp_path):
    (tmp_path / "history.csv").write_text("iteration,attempt,energy_data\n20,0,much\n")
    problems = []
    history = tmp_path / "history.csv"
    store = store_of(history=lambda fit: history)
    assert list(planning.figures(Report([cell("accuracy")]), store, problems.append)) == []
    assert problems == [
        f"{tmp_path / 'history.csv'} is not the history of a fit (could not convert string to "
        "float: 'much'); its curves cannot be drawn."
    ]
