"""The first view of a page: the values of its overview, samples of the models, the byline."""

import base64
import dataclasses
import io
import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from jembench import drawing
from jembench.api.results import Results
from jembench.data import grid
from jembench.experiment.names import DisplayNames
from jembench.interfaces import Value
from jembench.report.layout import Report
from jembench.report.page import content
from jembench.report.page.overview import byline, overview, strip
from jembench.report.page.pictures import Picture
from jembench.store.outcome import Outcome
from jembench.store.store import Store

VALUE = Value(1.0, 0.5, 2.0, 9, "", "higher")
NO_SAMPLES = Outcome(status="na", reason="needs samples")


def test_a_model_without_a_value_or_samples_has_the_reason_in_a_footnote(cell):
    cells = [
        *(
            cell(accuracy=VALUE),
            cell(metric="fid", fid_cnn=VALUE),
            cell(recipe="longer", accuracy=VALUE),
        ),
        *(cell("baseline", accuracy=VALUE), cell("baseline", "fid", outcome=NO_SAMPLES)),
    ]
    samples = {("jem", "digits", "digits"): Picture("", "", source="its own")}
    names = DisplayNames(recipes={"longer": "nine epochs"})
    found = overview(Report(cells).rows, samples, names=names)
    assert [[text.value for text in line][-2:] for line in found.table.rows] == [
        *(["1.00", "1.00"], ["1.00", "—"], ["1.00", "N/A"])
    ]
    assert ("needs samples", "1") in [(note.text, note.mark) for note in found.table.footnotes]
    assert [one.source for one in found.strips] == ["its own", "", ""]
    assert found.labels == ["jem · digits", "jem · nine epochs", "baseline"]
    assert found.below == ["digits", "nine epochs", "digits"]
    assert overview(Report(cells[-1:]).rows, {}) is overview([], {}) is None


def test_the_page_marks_the_best_values_and_has_a_dot_for_each(cell, tmp_path):
    store = Store(tmp_path)
    for model, count in (("jem", 395), ("baseline", 300)):
        value = Value(100 * count / 397, 99.0, 99.9, 397, "%", "higher")
        store.write_cell(cell(model, accuracy=value), {"correct": np.arange(397) < count})
    text = Results(store.cells(), store=store).table("html")
    assert text.count("<strong>99.50</strong>") == 2  # in the overview and in the table
    assert text.count("<strong>") == 2
    assert text.count("<circle") == 2
    assert "Bold: better than the runner-up" in text


def test_a_model_has_the_colour_of_figures_in_the_overview(cell, tmp_path):
    report = Report([cell("baseline", "nll", nll=VALUE), cell("jem", accuracy=VALUE)])
    page = content.collect(report, Store(tmp_path), "", ())
    assert page.overview.labels == ["jem"]
    # the baseline, which it has no row for, is the first model
    assert page.overview.colours == [drawing.VERMILLION]


def grid_of(tmp_path, images, chosen):
    grid.write_png(tmp_path / "samples.png", images.numpy(), chosen.numpy())
    content = base64.b64encode((tmp_path / "samples.png").read_bytes()).decode()
    return Picture("", f"data:image/png;base64,{content}", 0)


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (3, 80, 64)])
def test_a_strip_has_eight_samples_of_all_rows_and_no_empty_place(shape, tmp_path):
    images = torch.arange(40, dtype=torch.uint8)[:, None, None, None].expand(40, *shape)
    chosen = torch.arange(40).view(10, 4).clone()
    chosen[3] = -1
    found = strip(grid_of(tmp_path, images, chosen))
    with Image.open(io.BytesIO(base64.b64decode(found.partition(",")[2]))) as picture:
        pixels = np.asarray(picture)[16, :, 0]
    numbers = [
        int(one)
        for one, before in zip(pixels[1:], pixels, strict=False)
        if one != before and one < 40
    ]
    assert [int(pixels[0]), *numbers] == [0, 4, 9, 17, 22, 26, 31, 35]
    assert len(pixels) <= 8 * 64


def test_what_is_no_grid_has_no_strip(tmp_path):
    blank = torch.full((1, 1, 8, 8), 128, dtype=torch.uint8)
    assert strip(grid_of(tmp_path, blank, torch.zeros(2, 2, dtype=torch.long))) == ""
    assert strip(Picture("", "data:image/png;base64,iVBORw0KGgo=", 0)) == ""
    content = bytearray((tmp_path / "samples.png").read_bytes())
    content[16:24] = struct.pack(">II", 2**15, 2**15)  # the size that its header says
    content[29:33] = struct.pack(">I", zlib.crc32(content[12:29]))
    assert (
        strip(Picture("", f"data:image/png;base64,{base64.b64encode(content).decode()}", 0)) == ""
    )


def test_the_byline_says_when_where_and_with_what(cell):
    made = {
        "time": "2026-11-23T09:30:00",
        "hardware": {"processor": "EPYC"},
        "packages": {"jembench": "0.1.0"},
    }
    cells = [
        dataclasses.replace(cell(seed=1, accuracy=VALUE), provenance=made),
        dataclasses.replace(
            cell(seed=0, accuracy=VALUE), provenance={**made, "hardware": {"gpu": "H100"}}
        ),
    ]
    assert (
        byline(Report(cells).rows, cells)
        == "2026-11-23 · digits · seeds 0, 1 · EPYC, H100 · jembench 0.1.0"
    )
    limited = [dataclasses.replace(cells[0], provenance={**made, "limit": 2000})]
    assert byline([], limited) == "2026-11-23 · seed 1 · 2,000 test images · EPYC · jembench 0.1.0"
    assert byline([], []) == ""
