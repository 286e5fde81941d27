"""Image files with peculiarities: the pixels, and the remark, which the cache repeats."""

import struct
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from jembench.data import decoding
from jembench.errors import Remark

PIXELS = np.random.default_rng(0).integers(256, size=(4, 6, 3), dtype=np.uint8)
PICTURE = Image.fromarray(PIXELS)
FRAMES = {"save_all": True, "append_images": [PICTURE.rotate(180)]}
FORM = decoding.Form(mode="RGB", height=4, width=6, square=False)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def read(*paths: Path) -> tuple[torch.Tensor, list[str]]:
    """The pixels and the remarks, which are the same from the cache."""
    found = []
    for _ in range(2):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            images = decoding.decoded(
                "some", paths[0].parent, {path.name: path for path in paths}, FORM
            )[:]
        assert all(warning.category is Remark for warning in caught)
        found.append([str(warning.message) for warning in caught])
    assert found[0] == found[1]
    return images, found[0]


def turned() -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif


def hiding() -> Image.Image:
    return Image.fromarray(np.dstack([PIXELS, np.full((4, 6), 254, np.uint8)]))


def deep_png(colour: int, channels: int) -> bytes:
    """A PNG of 16 bits a channel, whose upper bytes are those of ``PIXELS``."""
    pixels = np.zeros((4, 6, channels, 2), np.uint8)
    pixels[..., :3, 0], pixels[..., 3:, :] = PIXELS, 255

    def chunk(name: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 6, 4, 16, colour, 0, 0, 0))
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


DEEP_PPM = b"P6 6 4 65535\n" + np.repeat(PIXELS[..., None], 2, axis=-1).tobytes()


@pytest.mark.parametrize(
    ("name", "picture", "options", "text"),
    [
        ("a.tif", PICTURE, FRAMES, "several frames or pages"),
        ("a.png", PICTURE, FRAMES, "several frames or pages"),
        ("a.png", PICTURE, {"exif": turned()}, "turned in viewers"),
        ("a.png", hiding(), {}, "transparent pixels"),
        ("a.png", PICTURE, {"transparency": tuple(map(int, PIXELS[0, 0]))}, "transparent pixels"),
        ("a.png", deep_png(2, 3), {}, "more than 8 bits"),
        ("a.png", deep_png(6, 4), {}, "more than 8 bits"),
        ("a.ppm", DEEP_PPM, {}, "more than 8 bits"),
    ],
)
def test_what_is_read_of_a_peculiar_file_is_said(tmp_path, name, picture, options, text):
    path = tmp_path / name
    if isinstance(picture, bytes):
        path.write_bytes(picture)
    else:
        picture.save(path, **options)
    PICTURE.save(tmp_path / "plain.png")
    images, (remark,) = read(path, tmp_path / "plain.png")
    assert torch.equal(images, torch.from_numpy(PIXELS).permute(2, 0, 1).expand(2, -1, -1, -1))
    assert remark.startswith("1 of 2 images ")
    assert text in remark
    assert remark.endswith(f"The first is {path}.")


@pytest.mark.parametrize(
    ("ending", "options"),
    [("gif", FRAMES), ("webp", FRAMES), ("webp", {"exif": turned()}), ("jpeg", {"exif": turned()})],
)
def test_other_formats_are_remarked_on_too(tmp_path, ending, options):
    PICTURE.save(tmp_path / f"a.{ending}", **options)
    assert len(read(tmp_path / f"a.{ending}")[1]) == 1


@pytest.mark.parametrize("mode", ["CMYK", "LAB"])
@pytest.mark.parametrize("form", ["RGB", "L"])
def test_colours_of_prints_are_converted(tmp_path, mode, form):
    picture = PICTURE.convert(mode) if mode == "CMYK" else Image.merge("LAB", PICTURE.split())
    picture.save(tmp_path / "a.tif")
    shape = decoding.Form(mode=form, height=4, width=6, square=False)
    with pytest.warns(Remark, match="1 of 1 images are CMYK or Lab"):
        decoded = decoding.decoded("some", tmp_path, {"a.tif": tmp_path / "a.tif"}, shape)[:]
    assert decoded.shape == (1, len(form), 4, 6)


@pytest.mark.parametrize("mode", ["RGB", "L", "1", "P", "YCbCr", "RGBA", "LA"])
def test_plain_files_have_no_remark(tmp_path, mode):
    PICTURE.convert(mode).save(tmp_path / "a.tif")
    assert read(tmp_path / "a.tif")[1] == []


def test_a_turned_tiff_is_upright_since_pillow_turns_it(tmp_path):
    Image.fromarray(np.rot90(PIXELS)).save(tmp_path / "a.tif", tiffinfo={0x0112: 6})
    images, said = read(tmp_path / "a.tif")
    assert torch.equal(images[0], torch.from_numpy(PIXELS).permute(2, 0, 1))
    assert said == []


def test_damaged_metadata_does_not_matter(tmp_path):
    PICTURE.save(tmp_path / "a.png", exif=b"Exif\0\0no metadata at all")
    images, said = read(tmp_path / "a.png")
    assert (images.shape, said) == ((1, 3, 4, 6), [])
