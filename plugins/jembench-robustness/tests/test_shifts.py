"""Corruptions, by closed forms and by the libraries that define them; and sets of files."""

import colorsys
import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Generator
from torch.nn import functional as F

from jembench.data.ood_sets.resolve import resolve
from jembench.errors import NotApplicable, Unavailable
from jembench.interfaces import DataSpec, Split
from jembench.running.evaluation import limited
from jembench_robustness import corruptions, shifts

CIFAR = DataSpec(name="cifar10", shape=(3, 32, 32), num_classes=10)
GREY = DataSpec(name="grey", shape=(1, 8, 9), num_classes=2)
BOX = Image.Resampling.BOX


def split(spec, n=12):
    generator = Generator().manual_seed(0)
    images = torch.randint(256, (n, *spec.shape), dtype=torch.uint8, generator=generator)
    return Split(images, torch.arange(n) % spec.num_classes)


def changed(name, x, severity=5):
    """The corruption of images of [0, 1], before levels are rounded."""
    change, severities = corruptions.CORRUPTIONS[name]
    return change(x, np.random.default_rng(0), *severities[severity - 1])


@pytest.mark.parametrize("spec", [CIFAR, GREY])
@pytest.mark.parametrize("name", corruptions.CORRUPTIONS)
def test_each_keeps_the_shape_and_the_labels_is_the_same_again_and_grows_with_severity(name, spec):
    images, labels = split(spec)
    coarse = images[..., :4, :4].float()
    smooth = F.interpolate(coarse, spec.shape[1:], mode="bilinear").byte()
    change = []
    for severity in (1, 5):
        shifted = shifts.corrupted(by=name, severity=severity)
        first = shifted.draw(Split(smooth, labels), spec)
        second = shifted.draw(Split(smooth, labels), spec)
        assert first.images.shape == smooth.shape
        assert first.images.dtype == torch.uint8
        assert torch.equal(first.images, second.images)
        assert torch.equal(first.labels, labels)
        difference = first.images.double() - smooth.double()
        change.append(difference.abs().mean())
    # whose affine map is largest at severity 1
    assert change[1] > change[0] or name == "elastic_transform"


def test_all_of_a_set_take_turns_and_are_its_parts():
    test = split(CIFAR, 20)
    shifted_set = shifts.corrupted(by="contrast")
    assert shifted_set.parts == [
        f"corrupted:by=contrast,severity={severity}" for severity in range(1, 6)
    ]
    for first, part in enumerate(shifted_set.parts):
        whole = resolve(part).make().draw(test, CIFAR).images
        images = shifted_set.draw(test, CIFAR).images
        assert torch.equal(images[first::5], whole[first::5])
    assert len(set(shifts.corrupted().parts)) == 75
    drawn = shifts.corrupted().draw(test, CIFAR)
    assert drawn.images.shape == test.images.shape
    shape = (1, 1, 2)
    plane = DataSpec(name="plane", shape=shape, num_classes=2)
    with pytest.raises(
        NotApplicable, match="grey or RGB images of at least 8x8; images of plane are 1x1x2"
    ):
        shifts.corrupted().draw(split(plane), plane)


def test_halves_of_a_level_are_rounded_up_whatever_the_error():
    values = np.array([2.5 - 1e-12, 2.5 + 1e-12, -3, 300])
    levels = corruptions.to_levels(values / 255)
    assert levels.tolist() == [3, 3, 0, 255]


def test_noise_has_its_moments():
    grey = np.full((40, 32, 32, 3), 0.5)
    gaussian = changed("gaussian_noise", grey, 2)
    shot = changed("shot_noise", grey, 3)
    assert gaussian.mean() == pytest.approx(0.5, abs=6e-4)
    assert gaussian.std() == pytest.approx(0.06, abs=6e-4)
    assert shot.mean() == pytest.approx(0.5, abs=6e-4)
    assert shot.var() == pytest.approx(0.5 / 100, abs=6e-4)
    impulse = changed("impulse_noise", grey)
    counted = [(impulse == value).mean() for value in (0, 1, 0.5)]
    assert counted == pytest.approx([0.035, 0.035, 0.93], abs=2.5e-3)


@pytest.mark.parametrize(
    "name",
    [
        "defocus_blur",
        "glass_blur",
        "motion_blur",
        "zoom_blur",
        "elastic_transform",
        "contrast",
        "pixelate",
    ],
)
def test_images_of_one_level_stay(name):
    flat = np.full((3, 32, 32, 3), 0.4)
    assert np.allclose(changed(name, flat), flat, atol=1e-12)


def test_a_point_becomes_a_disc_or_one_half_of_a_gaussian_and_a_slope_is_zoomed_about_its_centre():
    point = np.zeros((4, 64, 64, 1))
    distance = np.hypot(*np.mgrid[-32:32, -32:32])
    point[:, 32, 32] = 1
    disc = changed("defocus_blur", point)[0, ..., 0]
    inside = distance <= 3  # 1.5 of 32 pixels
    assert np.allclose(disc, inside / inside.sum(), atol=1e-6)
    smooth = np.exp(-0.5 * (np.arange(-2, 3) / 0.8) ** 2)  # 0.4 of 32 pixels
    smooth /= smooth.sum()
    blurred = changed("defocus_blur", point, 1)
    assert np.allclose(blurred[0, 30:35, 30:35, 0], np.outer(smooth, smooth))
    weights = np.exp(-0.5 * (np.arange(29) / 5) ** 2)
    degrees = np.array([0.0, 90.0])
    left, up = corruptions._smeared(point[:2], degrees, 7, 2.5)[..., 0]
    assert np.allclose(left[32, 32:3:-1], weights / weights.sum())
    assert np.allclose(left, up.T)
    row = np.linspace(-1, 1, 33)[None, None, :, None]
    slope = row.repeat(33, axis=1)
    for factor in (1.0, 1.1, 1.5, 2.25):
        zoomed = corruptions._zoomed(slope, factor)
        assert np.allclose(zoomed, slope / factor, atol=0.1)


def test_brightness_is_that_of_hsv_and_contrast_is_about_the_mean_of_a_channel():
    levels = np.array([[0, 0, 0], [255, 0, 0], [10, 200, 30], [128, 128, 128]]) / 255
    expected = []
    for colour in levels:
        h, s, v = colorsys.rgb_to_hsv(*colour)
        expected.append(colorsys.hsv_to_rgb(h, s, min(v + 0.3, 1)))
    brighter = changed("brightness", levels.reshape(1, 2, 2, 3))
    assert np.allclose(brighter.reshape(4, 3), expected)
    x = split(CIFAR).images.permute(0, 2, 3, 1).numpy() / 255
    shifted_set = changed("contrast", x)
    axes = (1, 2)
    assert np.allclose(shifted_set.mean(axis=axes), x.mean(axis=axes))
    assert np.allclose(shifted_set.std(axis=axes), 0.15 * x.std(axis=axes))


def test_pixels_and_jpeg_are_those_of_pillow():
    levels = split(CIFAR, 1).images.permute(0, 2, 3, 1).numpy()
    picture = Image.fromarray(levels[0])
    stream = io.BytesIO()
    picture.save(stream, "JPEG", quality=65)
    small = picture.resize((24, 24), BOX).resize((32, 32), BOX)
    jpeg = Image.open(stream, formats=["JPEG"])
    pictures = [("pixelate", 4, small), ("jpeg_compression", 2, jpeg)]
    for name, severity, expected in pictures:
        shifted_set = corruptions.corrupt(levels, name, severity, np.random.default_rng())
        assert np.array_equal(shifted_set[0], expected)


def test_weather_brightens_and_fog_veils_up_to_the_brightest_pixel():
    dark = np.full((8, 40, 32, 1), 0.1)
    plasma = corruptions._plasma(dark, np.random.default_rng(0), 2)
    assert plasma.shape == dark.shape
    assert plasma.min() >= 0
    assert plasma.max() <= 1
    assert plasma.std(axis=(1, 2)).min() > 0.05
    for name in ("snow", "frost"):
        assert changed(name, dark).mean() > 0.15
    assert changed("fog", dark).max() <= 0.1 + 1e-12


@pytest.fixture
def folder(tmp_path):
    """Eight images of CIFAR-10 at five severities, one level each, and CIFAR-10.1."""
    (place := tmp_path / "a, b").mkdir()
    levels = np.arange(40, dtype=np.uint8)[:, None, None, None]
    levels = levels.repeat(32, 1).repeat(32, 2).repeat(3, 3)
    np.save(place / "fog.npy", levels)
    np.save(place / "snow.npy", levels + np.uint8(100))
    labels = np.arange(40) % 8
    np.save(place / "labels.npy", labels.astype(np.uint8))
    np.save(place / "cifar10.1_v6_data.npy", levels[:9])
    np.save(place / "cifar10.1_v6_labels.npy", np.arange(9, dtype=np.int32))
    return str(place)


def test_cifar_10_c_has_five_severities_in_a_file(folder):
    snow = shifts.cifar10_c(by="snow", severity=3, root=folder)
    drawn = snow.draw(split(CIFAR, 8), CIFAR)
    assert drawn.images[:, 0, 0, 0].tolist() == list(range(116, 124))
    assert drawn.labels.tolist() == list(range(8))
    shifted_set = shifts.cifar10_c(by="fog", root=folder)
    drawn = shifted_set.draw(split(CIFAR, 8), CIFAR)
    assert drawn.images[:, 0, 0, 0].tolist() == [0, 9, 18, 27, 36, 5, 14, 23]
    of_parts = []
    for part in shifted_set.parts:
        images = resolve(part).make().draw(split(CIFAR, 8), CIFAR).images
        of_parts.append(images[0, 0, 0, 0].item())
    assert of_parts == [0, 8, 16, 24, 32]
    # --limit 3
    fog = shifts.cifar10_c(by="fog", severity=1, root=folder)
    few = fog.draw(split(CIFAR, 3), CIFAR)
    expected = limited(split(CIFAR, 8), 3).labels.tolist()
    assert few.images[:, 0, 0, 0].tolist() == few.labels.tolist() == expected


def test_cifar_10_1_has_images_and_labels_of_its_own(folder):
    drawn = shifts.cifar10_1(root=folder).draw(split(CIFAR, 20), CIFAR)
    assert drawn.images.shape == (9, 3, 32, 32)
    levels = drawn.images[:, 0, 0, 0].tolist()
    assert levels == drawn.labels.tolist() == list(range(9))


@pytest.mark.parametrize(
    ("outliers", "options", "message"),
    [
        (
            shifts.cifar10_c,
            {"by": "frost"},
            r"frost.npy is missing. Get it from zenodo.org.*cifar10-c:root=",
        ),
        (
            shifts.cifar10_1,
            {"version": "v4"},
            r"v4_data.npy is missing. Get it from .*modestyachts.*cifar10.1:root=",
        ),
        (shifts.cifar10_1, {}, "are not N images of 32x32x3 levels and N labels"),
        (shifts.cifar10_c, {"by": "fog"}, "fog.npy cannot be read: .*pickle"),
    ],
)
def test_what_is_no_such_file_says_where_it_comes_from(outliers, options, message, folder):
    np.save(f"{folder}/cifar10.1_v6_labels.npy", np.zeros(8))
    Path(folder, "fog.npy").write_bytes(b"text")
    with pytest.raises(Unavailable, match=message):
        outliers(**options, root=folder).draw(split(CIFAR), CIFAR)
    with pytest.raises(NotApplicable, match="CIFAR-10's classes, and images of grey are others"):
        outliers(**options, root=folder).draw(split(GREY), GREY)


@pytest.mark.parametrize(
    ("count", "labels", "message"),
    [
        (5, np.full(5, "cat"), "N labels from 0 to 9"),
        (5, np.full(5, 77), "N labels from 0 to 9"),
        (5, np.full(5, -1), "N labels from 0 to 9"),
        (0, np.zeros(0, dtype=int), "N labels from 0 to 9"),
        (4, np.arange(4), "labels.npy has 4 labels, not a multiple of 5. Get it from zenodo"),
        (5, None, "N labels from 0 to 9"),
    ],
)
def test_labels_that_are_not_cifar_10s_are_refused(count, labels, message, folder):
    levels = np.zeros((count, 32, 32, 3), dtype=np.uint8)
    np.save(f"{folder}/fog.npy", levels)
    with Path(folder, "labels.npy").open("wb") as file:
        np.savez(file, np.arange(5)) if labels is None else np.save(file, labels)
    with pytest.raises(Unavailable, match=message):
        shifts.cifar10_c(by="fog", severity=5, root=folder).draw(split(CIFAR), CIFAR)
