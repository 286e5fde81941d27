"""The fifteen corruptions of CIFAR-10-C, with its parameters.

Hendrycks and Dietterich (2019), arXiv:1903.12261.

The parameters of the five severities are those of ``make_cifar_c.py`` of the authors' code. Lengths
in pixels are for images of 32 pixels: they grow in proportion with the height of larger images, but
do not shrink for smaller images, since a quarter of a disc's radius is less than a pixel of a
digit. All other sizes are relative to the image. Given the same random numbers, levels differ from
the authors' code by at most one, for ``snow`` by at most three, since layers are not rounded to 256
levels, and the result is rounded to the nearest level, not down. ``frost`` draws ridges of a
fractal in place of photographs. The affine map of ``elastic_transform`` takes points as (row,
column), OpenCV as (x, y).

Images are float64 (N, H, W, C) in [0, 1]. The generator of random numbers is seeded by the
corruption and severity.

Legend: N images, H height, W width, C channels.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

Images = NDArray[np.float64]

AT_ONCE = 500
"""Images that are corrupted together, to limit the memory."""

# --- noise ----------------------------------------------------------------------------------------


def _gaussian_noise(x: Images, rng: Generator, std: float) -> Images:
    return x + rng.normal(scale=std, size=x.shape)


def _shot_noise(x: Images, rng: Generator, photons: float) -> Images:
    return rng.poisson(photons * x) / photons


def _impulse_noise(x: Images, rng: Generator, share: float) -> Images:
    drawn = rng.random(x.shape)
    return np.where(drawn < share, drawn < share / 2, x)


# --- blur -----------------------------------------------------------------------------------------


def _pixels(x: Images, length: float) -> float:
    """Convert a length for images of 32 pixels to these images."""
    return length * max(1.0, x.shape[1] / 32)


def _defocus_blur(x: Images, rng: Generator, radius: float, smoothing: float) -> Images:
    radius = _pixels(x, radius)
    smoothing = _pixels(x, smoothing)
    reach = round(_pixels(x, 1))
    most = int(radius) + reach
    offsets = np.arange(-most, most + 1)
    distance = offsets**2 + offsets[:, None] ** 2
    disc = 1.0 * (distance <= radius**2)
    disc /= disc.sum()
    kernel = ndimage.gaussian_filter(disc, smoothing, radius=reach, mode="constant")
    return ndimage.correlate(x, kernel[None, :, :, None], mode="mirror")


def _glass_blur(x: Images, rng: Generator, std: float, passes: int) -> Images:
    """Blur, replace each pixel by one of three neighbours or itself, and blur again.

    Pixels are replaced in place, at random.
    """
    std = _pixels(x, std)
    reach = round(_pixels(x, 1))
    sigma = (0, std, std, 0)
    n, height, width, _ = x.shape
    x = ndimage.gaussian_filter(x, sigma, mode="nearest")
    for _ in range(passes):
        for row in range(height - reach, reach, -1):
            for column in range(width - reach, reach, -1):
                rows, columns = rng.integers(-reach, reach, (2, n))
                nearby = x[np.arange(n), row + rows, column + columns]
                x[:, row, column] = nearby
    return ndimage.gaussian_filter(x, sigma, mode="nearest")


def _smeared(x: Images, degrees: NDArray[np.float64], radius: float, std: float) -> Images:
    """Blur each image by one-sided Gaussian means along its direction (N,).

    ImageMagick's motion blur does the same.
    """
    n, height, width, _ = x.shape
    taps = np.arange(2 * round(_pixels(x, radius)) + 1)
    deviations = taps / _pixels(x, std)
    weights = np.exp(-0.5 * deviations**2)
    smeared = np.zeros_like(x)
    turn = np.radians(degrees)[:, None]
    pairs = zip(taps, weights / weights.sum(), strict=True)
    for tap, weight in pairs:
        down = np.ceil(tap * np.sin(turn) - 0.5).astype(int)
        right = np.ceil(tap * np.cos(turn) - 0.5).astype(int)
        rows = (np.arange(height) + down).clip(0, height - 1)
        columns = (np.arange(width) + right).clip(0, width - 1)
        images = np.arange(n)[:, None, None]
        smeared += weight * x[images, rows[:, :, None], columns[:, None]]
    return smeared


def _motion_blur(x: Images, rng: Generator, radius: float, std: float) -> Images:
    degrees = rng.uniform(-45, 45, len(x))
    return _smeared(x, degrees, radius, std)


def _zoomed(x: Images, factor: float) -> Images:
    """Return the centres, enlarged linearly to the size of the images."""

    def weights(size: int) -> Images:
        cut = -int(-size // factor)
        start = (size - cut) // 2
        centre = np.eye(size)[start : start + cut]
        large = ndimage.zoom(centre, (factor, 1), order=1)
        start = (len(large) - size) // 2
        return large[start : start + size]

    rows = weights(x.shape[1])
    columns = weights(x.shape[2])
    return np.einsum("ij,njkc,lk->nilc", rows, x, columns, optimize=True)


def _zoom_blur(x: Images, rng: Generator, most: float) -> Images:
    factors = np.arange(1, most, 0.01)
    total = x + sum(_zoomed(x, factor) for factor in factors)
    return total / (len(factors) + 1)


# --- weather --------------------------------------------------------------------------------------


def _snow(
    x: Images,
    rng: Generator,
    mean: float,
    std: float,
    zoom: float,
    least: float,
    radius: float,
    smear: float,
    keep: float,
) -> Images:
    drawn = rng.normal(mean, std, (*x.shape[:3], 1))
    flakes = _zoomed(drawn, zoom)
    flakes = np.where(flakes < least, 0, flakes).clip(0, 1)
    degrees = rng.uniform(-135, -45, len(x))
    flakes = _smeared(flakes, degrees, radius, smear)
    shares = np.array([0.299, 0.587, 0.114]) if x.shape[3] == 3 else np.ones(1)
    grey = x @ shares
    lighter = np.maximum(x, 1.5 * grey[..., None] + 0.5)
    whitened = keep * x + (1 - keep) * lighter
    return whitened + flakes + flakes[:, ::-1, ::-1]


def _frost(x: Images, rng: Generator, keep: float, cover: float) -> Images:
    ridges = 1 - np.abs(2 * _plasma(x, rng, 1.5) - 1)
    return keep * x + cover * ridges


def _fog(x: Images, rng: Generator, cover: float, decay: float) -> Images:
    brightest = x.max(axis=(1, 2, 3), keepdims=True)
    foggy = x + cover * _plasma(x, rng, decay)
    return foggy * brightest / (brightest + cover)


def _plasma(x: Images, rng: Generator, decay: float) -> Images:
    """Return fractals (N, H, W, 1) by the diamond-square algorithm."""
    n, height, width, _ = x.shape
    size = 1 << (max(height, width) - 1).bit_length()
    plane = np.zeros((n, size, size))
    step = size
    swing = 100.0

    def middle(
        first: Images, first_axis: int, second: Images, second_axis: int, shift: int
    ) -> Images:
        along_first = first + np.roll(first, -1, first_axis)
        total = along_first + second + np.roll(second, shift, second_axis)
        return total / 4 + swing * rng.uniform(-swing, swing, total.shape)

    while step > 1:
        half = step // 2
        corners = plane[:, ::step, ::step]
        right = np.roll(corners, -1, 2)
        centres = middle(corners, 1, right, 1, -1)
        plane[:, half::step, half::step] = centres
        on_rows = middle(corners, 2, centres, 1, 1)
        plane[:, ::step, half::step] = on_rows
        on_columns = middle(corners, 1, centres, 2, 1)
        plane[:, half::step, ::step] = on_columns
        step, swing = half, swing / decay
    plane -= plane.min(axis=(1, 2), keepdims=True)
    plane /= plane.max(axis=(1, 2), keepdims=True)
    return plane[:, :height, :width, None]


def _brightness(x: Images, rng: Generator, more: float) -> Images:
    """Raise the value of HSV: colours are multiplied, and black becomes grey."""
    value = x.max(axis=3, keepdims=True)
    brighter = (value + more).clip(0, 1)
    divisor = np.where(value > 0, value, 1)
    return np.where(value > 0, x * brighter / divisor, brighter)


# --- digital --------------------------------------------------------------------------------------


def _contrast(x: Images, rng: Generator, keep: float) -> Images:
    means = x.mean(axis=(1, 2), keepdims=True)
    return keep * (x - means) + means


def _elastic_transform(x: Images, rng: Generator, reach: float, std: float, shear: float) -> Images:
    """Move images by an affine map, then by a smooth field.

    Map and field are random; lengths are in units of the height.
    """
    n, height, width, _ = x.shape
    side = min(height, width) // 3
    centre = np.array([height // 2, width // 2])
    corners = np.array([[1, 1], [1, -1], [-1, -1]])
    points = centre + side * corners
    change = rng.uniform(-1, 1, (n, 3, 2)) * shear * height
    moved = points + change
    originals = np.broadcast_to(points, moved.shape).astype(float)
    back = np.linalg.solve(np.insert(moved, 2, 1, axis=2), originals)
    indices = np.meshgrid(range(height), range(width), indexing="ij")
    grid = np.stack(indices, axis=-1)
    sigma = (0, std * height, std * height, 0)
    noise = rng.uniform(-1, 1, (n, height, width, 2))
    field = ndimage.gaussian_filter(noise, sigma, mode="reflect", truncate=3)
    homogeneous = np.insert(grid, 2, 1, axis=2)
    affine = np.einsum("hwi,nij->nhwj", homogeneous, back)
    x = _sampled(x, affine, "mirror")
    return _sampled(x, grid + reach * height * field, "reflect")


def _sampled(x: Images, places: Images, mode: str) -> Images:
    """Return the linear interpolation at places (N, H, W, 2) between pixels."""
    sampled = np.empty_like(x)
    for image, at, out in zip(x, places, sampled, strict=True):
        coordinates = at.transpose(2, 0, 1)
        for channel in range(x.shape[3]):
            values = ndimage.map_coordinates(image[..., channel], coordinates, order=1, mode=mode)
            out[..., channel] = values
    return sampled


def _by_pillow(change: Callable[[Image.Image, Any], Image.Image]) -> Callable[..., Images]:
    def changed(x: Images, rng: Generator, option: float) -> Images:
        levels = to_levels(x)
        if x.shape[3] == 1:
            levels = levels.squeeze(3)
        pictures = [change(Image.fromarray(image), option) for image in levels]
        arrays = [np.asarray(picture) for picture in pictures]
        return np.stack(arrays).reshape(x.shape) / 255

    return changed


def _pixelated(image: Image.Image, share: float) -> Image.Image:
    size = (int(share * image.width), int(share * image.height))
    small = image.resize(size, Image.Resampling.BOX)
    return small.resize(image.size, Image.Resampling.BOX)


def _as_jpeg(image: Image.Image, quality: int) -> Image.Image:
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=quality)
    return Image.open(stream, formats=["JPEG"])


# --- all of them ----------------------------------------------------------------------------------

CORRUPTIONS: Mapping[str, tuple[Callable[..., Images], tuple[tuple[float, ...], ...]]] = {
    "gaussian_noise": (_gaussian_noise, ((0.04,), (0.06,), (0.08,), (0.09,), (0.10,))),
    "shot_noise": (_shot_noise, ((500,), (250,), (100,), (75,), (50,))),
    "impulse_noise": (_impulse_noise, ((0.01,), (0.02,), (0.03,), (0.05,), (0.07,))),
    "defocus_blur": (_defocus_blur, ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1))),
    "glass_blur": (_glass_blur, ((0.05, 1), (0.25, 1), (0.4, 1), (0.25, 2), (0.4, 2))),
    "motion_blur": (_motion_blur, ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5))),
    "zoom_blur": (_zoom_blur, ((1.06,), (1.11,), (1.16,), (1.21,), (1.26,))),
    "snow": (
        _snow,
        (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
    ),
    "frost": (_frost, ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))),
    "fog": (_fog, ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75))),
    "brightness": (_brightness, ((0.05,), (0.1,), (0.15,), (0.2,), (0.3,))),
    "contrast": (_contrast, ((0.75,), (0.5,), (0.4,), (0.3,), (0.15,))),
    "elastic_transform": (
        _elastic_transform,
        ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
    ),
    "pixelate": (_by_pillow(_pixelated), ((0.95,), (0.9,), (0.85,), (0.75,), (0.65,))),
    "jpeg_compression": (_by_pillow(_as_jpeg), ((80,), (65,), (58,), (50,), (40,))),
}
"""Each corruption's function and parameters at severities 1 to 5, by the names of CIFAR-10-C's
files.
"""


def to_levels(x: Images) -> NDArray[np.uint8]:
    """Round values of [0, 1] to levels 0..255, halves up."""
    levels = np.round(255 * x.clip(0, 1), 6)
    return np.floor(levels + 0.5).astype(np.uint8)


def corrupt(
    images: NDArray[np.uint8], name: str, severity: int, rng: Generator
) -> NDArray[np.uint8]:
    """Return corrupted images of one or three channels."""
    change, severities = CORRUPTIONS[name]
    parameters = severities[severity - 1]
    corrupted = []
    for start in range(0, len(images), AT_ONCE):
        part = images[start : start + AT_ONCE] / 255
        corrupted.append(to_levels(change(part, rng, *parameters)))
    return np.concatenate(corrupted)
