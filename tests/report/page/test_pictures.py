"""Figures as parts of a page, and the sample grids of a store."""

import base64
import io
import re
from xml.etree import ElementTree

import pytest
from PIL import Image, ImageChops, ImageStat
from sklearn.datasets import load_sample_image

from jembench.drawing import look, new_figure
from jembench.report.figures.planned import Drawing, Planned
from jembench.report.page.pictures import Pictures, draw
from jembench.report.page.svg import inline, smaller
from jembench.store.store import Store

SVG = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 9 9">{}</svg>'


def planned(title, stem="figure"):
    figure = new_figure(3.3, 2.0, title)
    axes = figure.subplots()
    axes.plot([1, 2, 3], [1, 4, 2], "o-", label="<b>&")
    axes.imshow([[0, 1], [2, 3]])
    axes.stairs([1, 2], [0, 1, 2], hatch=look(1).hatch)
    axes.legend()
    return Planned(stem, lambda: Drawing(figure, [{"x": 1}]))


def test_a_drawing_has_text_no_styles_and_no_title():
    picture = draw(planned("jem <script> on digits"))
    root = ElementTree.fromstring(picture.svg)
    assert picture.title == "jem <script> on digits"
    assert root.get("aria-label") == picture.title
    assert "<b>&" in [element.text for element in root.iter("text")]
    assert {element.tag for element in root.iter()} <= {
        *("svg", "g", "path", "use", "defs", "text", "image", "clipPath", "rect", "pattern")
    }
    attributes = {name for element in root.iter() for name in element.attrib}
    assert attributes & {"style", "font-family"} == set()
    assert {"fill", "stroke-width", "clip-path"} <= attributes
    assert picture.title not in [element.text for element in root.iter("text")]


def test_every_reference_in_a_drawing_leads_to_an_id_of_its_own():
    one, same, other = (draw(planned(title)).svg for title in ("one", "one", "other"))
    assert one == same
    references = set(re.findall(r'(?:url\(|href=")#([^")]+)', one))
    assert references == ids(one) != set()
    assert ids(one).isdisjoint(ids(other))


def ids(svg):
    return set(re.findall(' id="([^"]+)', svg))


@pytest.mark.parametrize(
    "evil",
    [
        "<script>alert(1)</script>",
        '<a xlink:href="http://x.example"><path d="M0 0"/></a>',
        '<image xlink:href="http://x.example/a.png"/>',
        '<image xlink:href="data:image/svg+xml,x"/>',
        '<path onclick="alert(1)" d="M0 0"/>',
        "<style>@import 'http://x.example'</style>",
        "<foreignObject><p/></foreignObject>",
    ],
)
def test_what_draws_nothing_is_left_out(evil):
    text = inline(SVG.format(evil), "t")
    assert not re.search("script|example|data:|onclick|style|foreign", text)


def test_numbers_are_rounded_and_styles_become_attributes():
    text = inline(SVG.format('<path d="M 1.23456 2&#10;L 3 4.5" style="fill: #fff; stroke-width: 0.6"/>'), "t")
    assert '<path d="M 1.23 2 L 3 4.5" fill="#fff" stroke-width="0.6" />' in text


def test_a_figure_that_cannot_be_drawn_is_named(cell, tmp_path, monkeypatch):
    pictures = Pictures(Store(tmp_path))
    broken = Planned("broken", lambda: 1 / 0)
    monkeypatch.setattr("jembench.report.figures.training.seeds_of", lambda cells, names: [broken, planned("a")])
    assert [picture.title for picture in pictures.of_seeds([cell()])] == ["a"]
    assert list(pictures.left_out) == ["The figure broken cannot be drawn: ZeroDivisionError: division by zero"]


def test_the_samples_of_the_first_seed_that_has_some(cell, tmp_path):
    store = Store(tmp_path)
    cells = [cell(seed=2), cell(seed=1), cell(seed=0), cell("baseline")]
    for of in cells[:2]:
        store.fit_folder(of.fit).mkdir(parents=True)
        Image.new("L", (8 * of.fit.seed, 8)).save(store.fit_folder(of.fit) / "samples.png")
    (picture,) = Pictures(store).of_samples(cells)
    assert (picture.title, picture.width) == ("jem on digits, seed 1", 8)
    assert picture.png.startswith("data:image/png;base64,iVBOR")


def test_what_is_no_picture_is_left_out(cell, tmp_path):
    pictures, of = Pictures(Store(tmp_path)), cell()
    path = pictures.store.fit_folder(of.fit) / "samples.png"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"<svg onload=alert(1)>")
    assert pictures.of_samples([of]) == []
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(2**20))
    assert pictures.of_samples([of]) == []
    assert list(pictures.left_out) == ["samples.png of jem on digits, recipe digits, seed 0: File too large."]


def as_png(image):
    stream = io.BytesIO()
    image.save(stream, "png")
    return f"data:image/png;base64,{base64.b64encode(stream.getvalue()).decode()}"


def read(uri):
    return Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))).convert("RGB")


def test_pixels_that_repeat_their_neighbours_are_not_embedded():
    pixels = Image.frombytes("L", (4, 6), bytes(range(24)))
    found = smaller(as_png(pixels.resize((16, 24), Image.Resampling.NEAREST)))
    assert found.startswith("data:image/png")
    assert read(found) == pixels.convert("RGB")


def test_photographs_are_embedded_as_jpeg_in_their_colours():
    photograph = Image.fromarray(load_sample_image("flower.jpg")).resize((96, 64))
    given = as_png(photograph)
    found = smaller(given)
    assert found.startswith("data:image/jpeg")
    assert len(found) < 0.6 * len(given)
    difference = ImageChops.difference(read(found), photograph)
    assert max(ImageStat.Stat(difference).rms) < 6  # of 255


def test_a_picture_that_can_be_seen_through_stays_as_it_is():
    given = as_png(Image.new("RGBA", (4, 4), (0, 0, 0, 100)))
    assert smaller(given) == given
