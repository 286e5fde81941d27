"""The fifteen corruptions of CIFAR-10-C, with its parameters.

Hendrycks and Dietterich (2019), arXiv:1903.12261.

The parameters of the five severities are those of ``make_cifar_c.py`` of the authors' code. Lengths
in pixels are for images of 32 pixels: they grow in proportion with the height of larger images, and
are the same for smaller ones, since a quarter of a disc's radius is less than a pixel of a digit.
All other sizes are relative to the image. Given the same random numbers, levels are those of the
authors' code to within one, and those of ``snow`` to within three, since layers are not rounded to
256 levels, and the result is rounded to the nearest level, not down. ``frost`` draws ridges of a
fractal, not photographs. Points of the affine map of ``elastic_transform`` are (row, column), in
OpenCV (x, y).

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

_AT_ONCE = 500
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
    """Return a length in pixels, given that of an image of 32 pixels."""
    return length * max(1.0, x.shape[1] / 32)


def _defocus_blur(x: Images, rng: Generator, radius: float, smoothing: float) -> Images:
    radius, smoothing, reach = _pixels(x, radius), _pixels(x, smoothing), round(_pixels(x, 1))
    offsets = np.arange(-int(radius) - reach, int(radius) + reach + 1)
    disc = 1.0 * (offsets**2 + offsets[:, None] ** 2 <= radius**2)
    kernel = ndimage.gaussian_filter(disc / disc.sum(), smoothing, radius=reach, mode="constant")
    return ndimage.correlate(x, kernel[None, :, :, None], mode="mirror")


def _glass_blur(x: Images, rng: Generator, std: float, passes: int) -> Images:
    """Blur, replace each pixel by one of three neighbours or itself, and blur again.

    Pixels are replaced in place, at random.
    """
    std, reach = _pixels(x, std), round(_pixels(x, 1))
    sigma, (n, height, width, _) = (0, std, std, 0), x.shape
    x = ndimage.gaussian_filter(x, sigma, mode="nearest")
    for _ in range(passes):
        for row in range(height - reach, reach, -1):
            for column in range(width - reach, reach, -1):
                rows, columns = rng.integers(-reach, reach, (2, n))
                x[:, row, column] = x[np.arange(n), row + rows, column + columns]
    return ndimage.gaussian_filter(x, sigma, mode="nearest")


def _smeared(x: Images, degrees: NDArray[np.float64], radius: float, std: float) -> Images:
    """Return one-sided Gaussian means along a direction of each image (N,).

    ImageMagick's motion blur does the same.
    """
    n, height, width, _ = x.shape
    taps = np.arange(2 * round(_pixels(x, radius)) + 1)
    weights = np.exp(-0.5 * (taps / _pixels(x, std)) ** 2)
    found, turn = np.zeros_like(x), np.radians(degrees)[:, None]
    for tap, weight in zip(taps, weights / weights.sum(), strict=True):
        rows = (np.arange(height) + np.ceil(tap * np.sin(turn) - 0.5).astype(int)).clip(
            0, height - 1
        )
        columns = (np.arange(width) + np.ceil(tap * np.cos(turn) - 0.5).astype(int)).clip(
            0, width - 1
        )
        found += weight * x[np.arange(n)[:, None, None], rows[:, :, None], columns[:, None]]
    return found


def _motion_blur(x: Images, rng: Generator, radius: float, std: float) -> Images:
    return _smeared(x, rng.uniform(-45, 45, len(x)), radius, std)


def _zoomed(x: Images, factor: float) -> Images:
    """Return the centres, enlarged by linear interpolation to the size of the images."""

    def weights(size: int) -> Images:
        cut = -int(-size // factor)
        start = (size - cut) // 2
        large = ndimage.zoom(np.eye(size)[start : start + cut], (factor, 1), order=1)
        start = (len(large) - size) // 2
        return large[start : start + size]

    return np.einsum("ij,njkc,lk->nilc", weights(x.shape[1]), x, weights(x.shape[2]), optimize=True)


def _zoom_blur(x: Images, rng: Generator, most: float) -> Images:
    factors = np.arange(1, most, 0.01)
    return (x + sum(_zoomed(x, factor) for factor in factors)) / (len(factors) + 1)


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
    flakes = _zoomed(rng.normal(mean, std, (*x.shape[:3], 1)), zoom)
    flakes = np.where(flakes < least, 0, flakes).clip(0, 1)
    flakes = _smeared(flakes, rng.uniform(-135, -45, len(x)), radius, smear)
    grey = x @ (np.array([0.299, 0.587, 0.114]) if x.shape[3] == 3 else np.ones(1))
    whitened = keep * x + (1 - keep) * np.maximum(x, 1.5 * grey[..., None] + 0.5)
    return whitened + flakes + flakes[:, ::-1, ::-1]


def _frost(x: Images, rng: Generator, keep: float, cover: float) -> Images:
    return keep * x + cover * (1 - np.abs(2 * _plasma(x, rng, 1.5) - 1))


def _fog(x: Images, rng: Generator, cover: float, decay: float) -> Images:
    brightest = x.max(axis=(1, 2, 3), keepdims=True)
    return (x + cover * _plasma(x, rng, decay)) * brightest / (brightest + cover)


def _plasma(x: Images, rng: Generator, decay: float) -> Images:
    """Return fractals (N, H, W, 1) from 0 to 1, by the diamond-square algorithm on a torus."""
    n, height, width, _ = x.shape
    size = 1 << (max(height, width) - 1).bit_length()
    plane, step, swing = np.zeros((n, size, size)), size, 100.0

    def middle(
        first: Images, first_axis: int, second: Images, second_axis: int, shift: int
    ) -> Images:
        total = (
            first + np.roll(first, -1, first_axis) + second + np.roll(second, shift, second_axis)
        )
        return total / 4 + swing * rng.uniform(-swing, swing, total.shape)

    while step > 1:
        half, corners = step // 2, plane[:, ::step, ::step]
        centres = middle(corners, 1, np.roll(corners, -1, 2), 1, -1)
        plane[:, half::step, half::step] = centres
        plane[:, ::step, half::step] = middle(corners, 2, centres, 1, 1)
        plane[:, half::step, ::step] = middle(corners, 1, centres, 2, 1)
        step, swing = half, swing / decay
    plane -= plane.min(axis=(1, 2), keepdims=True)
    return (plane / plane.max(axis=(1, 2), keepdims=True))[:, :height, :width, None]


def _brightness(x: Images, rng: Generator, more: float) -> Images:
    """Raise the value of HSV: colours are multiplied, and black becomes grey."""
    value = x.max(axis=3, keepdims=True)
    brighter = (value + more).clip(0, 1)
    return np.where(value > 0, x * brighter / np.where(value > 0, value, 1), brighter)


# --- digital --------------------------------------------------------------------------------------


def _contrast(x: Images, rng: Generator, keep: float) -> Images:
    means = x.mean(axis=(1, 2), keepdims=True)
    return keep * (x - means) + means


def _elastic_transform(x: Images, rng: Generator, reach: float, std: float, shear: float) -> Images:
    """Move three points by an affine map, and then each pixel by a smooth field.

    Both are random; lengths are in heights.
    """
    n, height, width, _ = x.shape
    side, centre = min(height, width) // 3, np.array([height // 2, width // 2])
    points = centre + side * np.array([[1, 1], [1, -1], [-1, -1]])
    moved = points + rng.uniform(-1, 1, (n, 3, 2)) * shear * height
    back = np.linalg.solve(
        np.insert(moved, 2, 1, axis=2), np.broadcast_to(points, moved.shape).astype(float)
    )
    grid = np.stack(np.meshgrid(range(height), range(width), indexing="ij"), axis=-1)
    sigma = (0, std * height, std * height, 0)
    field = ndimage.gaussian_filter(
        rng.uniform(-1, 1, (n, height, width, 2)), sigma, mode="reflect", truncate=3
    )
    x = _sampled(x, np.einsum("hwi,nij->nhwj", np.insert(grid, 2, 1, axis=2), back), "mirror")
    return _sampled(x, grid + reach * height * field, "reflect")


def _sampled(x: Images, places: Images, mode: str) -> Images:
    """Return the values between pixels at places (N, H, W, 2), by linear interpolation."""
    channels = (
        (image[..., c], at.transpose(2, 0, 1))
        for image, at in zip(x, places, strict=True)
        for c in range(x.shape[3])
    )
    found = np.stack([ndimage.map_coordinates(one, at, order=1, mode=mode) for one, at in channels])
    return np.moveaxis(found.reshape(len(x), x.shape[3], *x.shape[1:3]), 1, 3)


def _by_pillow(change: Callable[[Image.Image, Any], Image.Image]) -> Callable[..., Images]:
    def changed(x: Images, rng: Generator, option: float) -> Images:
        pictures = (
            Image.fromarray(one.squeeze(2) if one.shape[2] == 1 else one) for one in to_levels(x)
        )
        return (
            np.stack([np.asarray(change(one, option)) for one in pictures]).reshape(x.shape) / 255
        )

    return changed


def _pixelated(image: Image.Image, share: float) -> Image.Image:
    small = image.resize(
        (int(share * image.width), int(share * image.height)), Image.Resampling.BOX
    )
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
"""The function of each corruption, by the names of CIFAR-10-C's files, and its parameters at
severities 1 to 5.
"""


def to_levels(x: Images) -> NDArray[np.uint8]:
    """Round values of [0, 1] to levels 0..255, halves up whatever the rounding errors."""
    return np.floor(np.round(255 * x.clip(0, 1), 6) + 0.5).astype(np.uint8)


def corrupt(
    images: NDArray[np.uint8], name: str, severity: int, rng: Generator
) -> NDArray[np.uint8]:
    """Return corrupted images, uint8 (N, H, W, C), of one or three channels."""
    change, severities = CORRUPTIONS[name]
    parts = (images[start : start + _AT_ONCE] / 255 for start in range(0, len(images), _AT_ONCE))
    return np.concatenate(
        [to_levels(change(part, rng, *severities[severity - 1])) for part in parts]
    )
