"""Figures and sample grids of a store as images of a page."""

import base64
import dataclasses
import io

import torch
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from jembench import drawing
from jembench.catalog import registry
from jembench.catalog.spec import Spec
from jembench.report.figures.base import Drawing, Planned
from jembench.report.page.pictures import Pictures
from jembench.store import pictures as sealed
from jembench.store import tensors
from jembench.store.fits import weights_digest
from jembench.store.layout import drawn_name
from jembench.store.outcome import Outcome
from jembench.store.store import Store


def planned(title, stem="figure"):
    figure, (axes,) = drawing.panels(title, 2.0)
    axes.plot([1, 2, 3], [1, 4, 2], "o-", label="<b>&")
    axes.imshow([[0, 1], [2, 3]])
    return Planned(stem, lambda: Drawing(figure, [{"x": 1}]))


def test_a_drawing_is_an_svg_whose_title_stands_beside_it(tmp_path):
    pictures = Pictures(Store(tmp_path))
    (picture,) = pictures.drawn([planned("jem <script> on digits")])
    kind, _, content = picture.image.partition(",")
    assert kind == "data:image/svg+xml;base64"
    assert b"<svg" in base64.b64decode(content)
    assert b"<script" not in base64.b64decode(content)
    assert picture.title == "jem <script> on digits"
    assert [picture] == pictures.drawn([planned("jem <script> on digits")])


def test_a_figure_that_cannot_be_drawn_is_named(tmp_path):
    pictures = Pictures(Store(tmp_path))
    broken = Planned("broken", lambda: 1 / 0)
    assert [picture.title for picture in pictures.drawn([broken, planned("a")])] == ["a"]
    assert list(pictures.left_out) == [
        "The figure broken cannot be drawn: ZeroDivisionError: division by zero"
    ]


def test_the_samples_of_the_first_seed_that_has_some(cell, tmp_path):
    store = Store(tmp_path)
    cells = [cell(seed=2), cell(seed=1), cell(seed=0)]
    for of in cells[:2]:
        store.fit_folder(of.fit).mkdir(parents=True)
        _draw(store.fit_folder(of.fit), of.fit.id)
    picture = Pictures(store).of_samples(cells)
    assert picture.title == "jem on digits, seed 1"
    assert picture.image.startswith("data:image/png;base64,iVBOR")


def test_chains_that_were_measured_are_shown_before_the_samples_of_the_model(cell, tmp_path):
    pictures, protocol = (
        Pictures(Store(tmp_path)),
        'fid:data=digits,source="sgld:noise=0.01,steps=9"',
    )
    made = cell(
        metric='fid:sampler="sgld:steps=9"', outcome=Outcome(status="ok", protocol=protocol)
    )
    folder = pictures.store.fit_folder(made.fit)
    tensors.write(folder / "model.safetensors", {"weight": torch.zeros(1)}, {})
    _draw(folder, made.fit.id)
    readings = pictures.store.readings_of(made.fit.id, weights_digest(folder))
    name = drawn_name(1000, 9, False, registry.resolve("samplers", "sgld:steps=9"))
    images = {"images": torch.full((3, 1, 32, 32), 7, dtype=torch.uint8)}
    tensors.write(readings / f"{name}.safetensors", images, {}, placed=True)
    measured = pictures.of_samples([made])
    assert measured.source == "new chains of 9 steps by sgld, measured for FID"
    grid = Image.open(io.BytesIO(base64.b64decode(measured.image.partition(",")[2])))
    assert grid.getcolors()[0] == (3 * 64 * 64, (7, 7, 7))
    evil = dataclasses.replace(made, metric=Spec('fid:sampler="evil:sampler"'))
    assert pictures.of_samples([evil]).source == "the model's own samples"
    assert "evil" in next(iter(pictures.left_out))


def test_what_is_no_picture_is_left_out(cell, tmp_path):
    pictures, of = Pictures(Store(tmp_path)), cell()
    path = pictures.store.fit_folder(of.fit) / "samples.png"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"<svg onload=alert(1)>")
    assert pictures.of_samples([of]) is None
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(2**20))
    assert pictures.of_samples([of]) is None
    too_large = "samples.png of jem on digits, recipe digits, seed 0: File too large."
    assert list(pictures.left_out)[1:] == [too_large]


def test_the_picture_of_another_model_is_left_out_with_a_note(cell, tmp_path):
    pictures, of = Pictures(Store(tmp_path)), cell()
    folder = pictures.store.fit_folder(of.fit)
    folder.mkdir(parents=True)
    _draw(folder, "another")
    assert pictures.of_samples([of]) is None
    assert "of another model than its folder's" in next(iter(pictures.left_out))


def _draw(folder, fit_id):
    """Draw a picture as that of a fit."""
    texts = PngInfo()
    texts.add_text(sealed.KEY, f"{fit_id} 0")
    Image.new("L", (8, 8)).save(folder / sealed.SAMPLES, pnginfo=texts)
