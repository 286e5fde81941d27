"""The OOD sets that core registers. torch is imported when images are drawn.

The name of any dataset is also the name of an OOD set.

Legend: N images, C channels, H height, W width.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, get_args

from jembench.catalog.options import Incidental
from jembench.errors import NotApplicable, SpecError, Unavailable
from jembench.interfaces import DataSpec, OODSet, Split

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Generator, Tensor


class Drawn(NamedTuple):
    """An OOD set that is given by one function."""

    draw: Callable[[Split, DataSpec], Tensor | Split]
    noise: float = 1.0
    """Its data noise's standard deviation, in units of the test images' data noise."""


def _generator(name: str) -> Generator:
    from jembench import seeds

    return seeds.generator(0, f"outliers/{name}")


def _each(change: Callable[[Tensor], Tensor]) -> Callable[[Split, DataSpec], Tensor]:
    """Return the function that draws the test images, each changed by itself."""

    def draw(test: Split, data: DataSpec) -> Tensor:
        from jembench.data.images import changed

        return changed(test.images, lambda images, places: change(images))

    return draw


# --- changed test images, in the order of the test images -----------------------------------------


def interp() -> OODSet:
    """Means of each test image and another test image.

    (x_i + x_j) / 2, where j is drawn at random among the other images; a level of .5 is rounded up.
    Grathwohl et al. (2020), section 5.3: interpolations of two images of the test set. Their code
    adds data noise to both images and to their mean: sqrt(1/4 + 1/4 + 1) times ``data_noise`` in
    all.
    """

    def draw(test: Split, data: DataSpec) -> Tensor:
        import torch

        from jembench.data.images import changed

        n = len(test.images)
        if n < 2:
            raise NotApplicable(f"interp takes two different test images, and {data.name} has {n}.")
        further = torch.randint(1, n, (n,), generator=_generator("interp"))
        partners = (torch.arange(n) + further) % n

        def mixed(images: Tensor, places: Tensor) -> Tensor:
            second = test.images[partners[places]]
            return ((images.short() + second.short() + 1) // 2).byte()

        return changed(test.images, mixed)

    return Drawn(draw, noise=1.5**0.5)


def flipped() -> OODSet:
    """Test images, flipped left to right."""
    return Drawn(_each(lambda images: images.flip(3)))


def rotated() -> OODSet:
    """Test images, turned by 90 degrees counter-clockwise."""
    turned = _each(lambda images: images.rot90(1, (2, 3)).contiguous())

    def draw(test: Split, data: DataSpec) -> Tensor:
        _, height, width = data.shape
        if height != width:
            raise NotApplicable(
                f"rotated needs square images; those of {data.name} are {height}x{width} pixels."
            )
        return turned(test, data)

    return Drawn(draw)


def inverted() -> OODSet:
    """Test images with dark and light exchanged."""
    return Drawn(_each(lambda images: 255 - images))


def permuted() -> OODSet:
    """Test images with rearranged pixels, by one random permutation for all.

    The channels of a pixel stay together.
    """

    def draw(test: Split, data: DataSpec) -> Tensor:
        import torch

        _, height, width = data.shape
        order = torch.randperm(height * width, generator=_generator("permuted"))

        def rearranged(images: Tensor) -> Tensor:
            return images.flatten(2)[:, :, order].reshape(images.shape)

        return _each(rearranged)(test, data)

    return Drawn(draw)


def halves() -> OODSet:
    """The upper half of each test image over another class' lower half.

    Each pixel has nearly the distribution that it has in test images, so that neither brightness
    nor empty borders distinguish these images. The second image is drawn at random; without labels
    it is any other test image.
    """

    def draw(test: Split, data: DataSpec) -> Tensor:
        import torch

        from jembench.data.images import changed

        n, half = len(test.images), data.shape[1] // 2
        labels = test.labels
        if labels is None:
            labels = torch.arange(n)
        others = n - labels.bincount()[labels]
        if not others.all():
            raise NotApplicable(
                f"halves takes test images of two classes, and those of {data.name} have one."
            )
        share = torch.rand(n, generator=_generator("halves"), dtype=torch.float64)
        further = (share * others).long()
        by_class, next_class = labels.argsort(stable=True), labels.bincount().cumsum(0)[labels]
        lower = by_class[(next_class + further) % n]

        def joined(images: Tensor, places: Tensor) -> Tensor:
            second = test.images[lower[places]]
            return torch.cat([images[:, :, :half], second[:, :, half:]], dim=2)

        return changed(test.images, joined)

    return Drawn(draw)


def phases() -> OODSet:
    """Test images with random Fourier phases: textures with the power spectrum of each image.

    The phases of white noise, new for each image, are added to the phases of all channels, so that
    colours stay together (Prichard and Theiler, 1994). Levels are rounded, and clamped to 0..255.
    """

    def draw(test: Split, data: DataSpec) -> Tensor:
        import torch

        from jembench.data.images import drawn

        def textures(part: slice, generator: Generator) -> Tensor:
            images = test.images[part].float()
            noise = torch.randn(len(images), 1, *data.shape[1:], generator=generator)
            turns = torch.fft.rfft2(noise).angle()
            turns[:, :, 0, 0] = 0  # the mean colour remains
            spectrum = torch.fft.rfft2(images) * torch.polar(torch.ones_like(turns), turns)
            turned: Tensor = torch.fft.irfft2(spectrum, s=data.shape[1:])
            return turned.round().clamp(0, 255).byte()

        return drawn(test.images, textures, _generator("phases"), data.shape)

    return Drawn(draw)


# --- random images, which every score should detect -----------------------------------------------


def uniform() -> OODSet:
    """Uniform noise: independent values, all 256 levels equally likely.

    This is U(-1, 1) in the model's units, on the levels 0..255.
    """

    def draw(test: Split, data: DataSpec) -> Tensor:
        import torch

        from jembench import limits
        from jembench.data.images import Images, drawn

        def noise(part: slice, generator: Generator) -> Tensor:
            shape = (part.stop - part.start, *data.shape)
            return torch.randint(256, shape, generator=generator, dtype=torch.uint8)

        if not isinstance(test.images, Images):
            size = len(test.images) * math.prod(data.shape)
            limits.check_bytes(f"uniform noise of {len(test.images):,} images", size)
        return drawn(test.images, noise, _generator("uniform"), data.shape)

    return Drawn(draw)


def constant(*, value: float | None = None) -> OODSet:
    """Images of a single level.

    The level is random for each image, or ``value`` for all, in the model's units, such as 0.

    Grathwohl et al. (2020) write of a constant 0, later papers of -1; ``value=0`` becomes level 128
    of 0..255, the nearest there is.
    """

    def draw(test: Split, data: DataSpec) -> Tensor:
        import torch

        from jembench.data.images import Images

        n, (low, high) = len(test.images), data.bounds
        if value is None:
            levels = torch.randint(256, (n,), generator=_generator("constant"), dtype=torch.uint8)
        elif low <= value <= high:
            level = int(255 * (value - low) / (high - low) + 0.5)
            levels = torch.full((n,), level, dtype=torch.uint8)
        else:
            raise SpecError(
                f"value of constant is {value}; pixels of {data.name} lie between {low} and {high}."
            )

        def filled(rows: Tensor) -> Tensor:
            return levels[rows, None, None, None].expand(-1, *data.shape).contiguous()

        if isinstance(test.images, Images):
            return Images(filled, torch.arange(n), data.shape)
        return filled(torch.arange(n))

    return Drawn(draw)


# --- images of a benchmark ------------------------------------------------------------------------


_OfCifar = Literal["cifar10", "cifar100", "tin", "mnist", "svhn", "texture", "places365"]
_OfImageNet = Literal["ssb_hard", "ninco", "inaturalist", "textures", "openimage_o"]


def openood(
    *, name: Literal[_OfCifar, _OfImageNet], root: Annotated[str, Incidental()] = ""
) -> OODSet:
    """All images of OpenOOD's list of a set for CIFAR-10, CIFAR-100 or ImageNet-1k.

    Zhang et al. (2023), arXiv:2306.09301. For ImageNet ssb_hard and ninco are near, and
    inaturalist, textures and openimage_o far. ``root`` is the folder with ``benchmark_imglist``,
    ``images_classic`` and ``images_largescale`` that OpenOOD's scripts/download fills
    ($JEMBENCH_DATA/openood or ~/.cache/jembench/data/openood by default). Images are cropped to
    their central square, then resized bilinearly; OpenOOD resizes first.
    """

    def draw(test: Split, data: DataSpec) -> Tensor:
        from jembench.data.decoding import Form, decoded
        from jembench.files import data_folder

        folder = data_folder(root) if root else data_folder() / "openood"
        of_imagenet = name in get_args(_OfImageNet)
        benchmark = "imagenet" if of_imagenet else data.name
        images = "images_classic"
        if of_imagenet and name != "textures":
            images = "images_largescale"
        listed = folder / "benchmark_imglist" / benchmark / f"test_{name}.txt"
        missing: Path | None = listed
        if listed.is_file():
            lines = listed.read_text(errors="surrogateescape").splitlines()
            paths = [line.split()[0] for line in lines if line.strip()]
            files = {path: folder / images / path for path in paths}
            missing = next((file for file in files.values() if not file.is_file()), None)
        if missing:
            what = "list" if missing == listed else "image"
            raise Unavailable(
                f"OpenOOD's {what} {missing} is missing. Get its lists and images by "
                "scripts/download of its project, and name their folder: openood:root=FOLDER or, "
                "for all sets, the folder openood in JEMBENCH_DATA."
            )
        _, height, width = data.shape
        form = Form(mode="RGB", height=height, width=width, square=True, method="bilinear")
        return decoded(f"openood-{name}", listed, files, form)

    return Drawn(draw)
