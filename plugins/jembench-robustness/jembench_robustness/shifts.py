"""OOD sets of shifted test images with labels.

The sets are fifteen corruptions, CIFAR-10-C and CIFAR-10.1.

Legend: N test images, M images of a file, K pairs of a corruption and a severity.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, get_args

from jembench.files import data_folder
from jembench.interfaces import DataSpec, OODSet, Split
from jembench.plugin import Incidental, NotApplicable, Range, Unavailable

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    Levels = NDArray[Any]

By = Literal[
    "all", "gaussian_noise", "shot_noise", "impulse_noise",
    "defocus_blur", "glass_blur", "motion_blur", "zoom_blur",
    "snow", "frost", "fog", "brightness",
    "contrast", "elastic_transform", "pixelate", "jpeg_compression",
]  # fmt: skip
Severity = Annotated[int, Range(least=0, most=5)]
Root = Annotated[str, Incidental()]
Pairs = list[tuple[str, int]]


class Shifted(NamedTuple):
    """An OOD set with labels."""

    draw: Callable[[Split, DataSpec], Split]
    parts: Sequence[str] = ()


def corrupted(*, by: By = "all", severity: Severity = 0) -> OODSet:
    """Test images with one of CIFAR-10-C's corruptions at a severity of 1 to 5.

    Hendrycks & Dietterich (2019), arXiv:1903.12261, for grey or RGB images of at least 8x8 pixels;
    the module ``jembench_robustness.corruptions`` has the parameters. With ``by=all`` corruptions,
    and with ``severity=0`` all severities, take turns over the images; the metric ``shift``
    measures each pair on all images.
    """
    pairs = _pairs(by, severity)

    def draw(test: Split, data: DataSpec) -> Split:
        import numpy as np

        from jembench.data.images import check_small, drawn, loaded
        from jembench.parts import seeds
        from jembench_robustness.corruptions import AT_ONCE, corrupt

        if data.shape[0] not in (1, 3) or min(data.shape[1:]) < 8:
            size = "x".join(map(str, data.shape))
            raise NotApplicable(
                f"corrupted takes grey or RGB images of at least 8x8; images of {data.name} are "
                f"{size}."
            )

        def generator(by: str, severity: int) -> np.random.Generator:
            return np.random.default_rng(seeds.derive(0, f"outliers/corrupted-{by}-{severity}"))

        if len(pairs) == 1:

            def draw_part(part: slice, rng: np.random.Generator) -> Tensor:
                levels = test.images[part].permute(0, 2, 3, 1).numpy()
                return _channels_first(corrupt(levels, *pairs[0], rng))

            rng = generator(*pairs[0])
            return Split(drawn(test.images, draw_part, rng, data.shape, AT_ONCE), test.labels)
        check_small(test.images, "A set of several corruptions")
        levels = loaded(test.images).permute(0, 2, 3, 1).numpy()

        def part(by: str, severity: int, chosen: slice) -> Levels:
            return corrupt(levels[chosen], by, severity, generator(by, severity))

        return Split(_in_turn(len(levels), pairs, part), test.labels)

    return Shifted(draw, [f"corrupted:by={by},severity={severity}" for by, severity in pairs])


def cifar10_c(*, by: By = "all", severity: Severity = 0, root: Root = "") -> OODSet:
    """CIFAR-10-C: the test images of CIFAR-10 with fifteen corruptions.

    Options are those of ``corrupted``.

    ``root`` is the folder of ``fog.npy``, ... and ``labels.npy`` ($JEMBENCH_DATA/CIFAR-10-C or
    ~/.cache/jembench/data/CIFAR-10-C by default), from zenodo.org/records/2535967. Hendrycks &
    Dietterich (2019).
    """
    pairs = _pairs(by, severity)

    def draw(test: Split, data: DataSpec) -> Split:
        where = "CIFAR-10-C", "zenodo.org/records/2535967", root
        files = {}
        for name, _ in pairs:
            files[name] = _read(data, f"{name}.npy", "labels.npy", *where)
        _, labels = files[pairs[0][0]]
        size, rest = divmod(len(labels), 5)  # severities, one after another
        if rest:
            raise Unavailable(
                f"CIFAR-10-C's labels.npy has {len(labels)} labels, not a multiple of 5. Get it "
                f"from {where[1]}."
            )
        index = _chosen(size, test)

        def part(by: str, severity: int, chosen: slice) -> Levels:
            levels, _ = files[by]
            return levels[index[chosen].numpy() + size * (severity - 1)]

        return Split(_in_turn(len(index), pairs, part), labels[index])

    options = f",root={json.dumps(root)}" if root else ""
    return Shifted(
        draw, [f"cifar10-c:by={by},severity={severity}{options}" for by, severity in pairs]
    )


def cifar10_1(*, version: Literal["v6", "v4"] = "v6", root: Root = "") -> OODSet:
    """CIFAR-10.1: 2,000 (v6) or 2,021 (v4) later images of CIFAR-10's classes.

    ``root`` is the folder of ``cifar10.1_v6_data.npy`` and ``cifar10.1_v6_labels.npy``
    ($JEMBENCH_DATA/CIFAR-10.1 or ~/.cache/jembench/data/CIFAR-10.1 by default), from
    github.com/modestyachts/CIFAR-10.1. Recht et al. (2018), arXiv:1806.00451.
    """

    def draw(test: Split, data: DataSpec) -> Split:
        names = (f"cifar10.1_{version}_{part}.npy" for part in ("data", "labels"))
        images, labels = _read(
            data, *names, "CIFAR-10.1", "github.com/modestyachts/CIFAR-10.1", root
        )
        index = _chosen(len(labels), test)
        return Split(_channels_first(images[index.numpy()]), labels[index])

    return Shifted(draw)


def _pairs(by: str, severity: int) -> Pairs:
    """Return a set's pairs of a corruption and a severity."""
    corruptions = get_args(By)[1:] if by == "all" else [by]
    severities = [severity] if severity else range(1, 6)
    return list(itertools.product(corruptions, severities))


def _in_turn(n: int, pairs: Pairs, draw: Callable[[str, int, slice], Levels]) -> Tensor:
    """Return images uint8 (N, C, H, W) that pairs draw in turn."""
    import numpy as np

    drawn = []
    for k, pair in enumerate(pairs[:n]):
        drawn.append(draw(*pair, slice(k, None, len(pairs))))
    shape = (n, *drawn[0].shape[1:])
    images = np.empty(shape, dtype=np.uint8)
    for k, part in enumerate(drawn):
        images[k :: len(pairs)] = part
    return _channels_first(images)


def _channels_first(images: Levels) -> Tensor:
    import torch

    batch = torch.from_numpy(images)
    return batch.permute(0, 3, 1, 2).contiguous()


def _chosen(size: int, test: Split) -> Tensor:
    """Return the places of as many images as there are test images.

    Where a limit drew the test images, these are the places that it drew; else all.
    """
    import torch

    from jembench.parts import seeds

    if len(test.images) >= size:
        return torch.arange(size)
    generator = seeds.generator(0, "evaluation/limit")
    return torch.randperm(size, generator=generator)[: len(test.images)]


def _read(
    data: DataSpec, images: str, labels: str, name: str, source: str, root: str
) -> tuple[Levels, Tensor]:
    """Return images (M, 32, 32, 3) and labels (M,) of two files.

    Raises:
        NotApplicable: if the dataset has another shape or number of classes than CIFAR-10.
        Unavailable: if a file is missing, or is not what it should be.
    """
    import numpy as np
    import torch

    if data.shape != (3, 32, 32) or data.num_classes != 10:
        raise NotApplicable(
            f"{name} has 3x32x32 images of CIFAR-10's classes, and images of {data.name} are "
            "others."
        )
    folder = data_folder(root) if root else data_folder() / name
    option = f"{name.lower().replace('-', '', 1)}:root=..."
    remedy = (
        f"Get it from {source}, and name its folder: {option} or, for the folder above {name}, "
        "JEMBENCH_DATA=..."
    )
    arrays: list[Levels] = []
    for path in (folder / images, folder / labels):
        if not path.is_file():
            raise Unavailable(f"{path} is missing. {remedy}")
        try:
            arrays.append(np.load(path, mmap_mode="r"))
        except (OSError, ValueError, EOFError) as error:
            raise Unavailable(f"{path} cannot be read: {error}. {remedy}") from error
    pixels, classes = arrays
    # np.load reads archives too, which lack an array's attributes
    are_arrays = all(isinstance(array, np.ndarray) for array in arrays)
    if not (are_arrays and _are_levels(pixels, classes.size) and _are_classes(classes)):
        what = "N images of 32x32x3 levels and N labels from 0 to 9"
        raise Unavailable(f"{folder / images} and {labels} are not {what}. {remedy}")
    return pixels, torch.from_numpy(classes.astype(np.int64))


def _are_levels(pixels: Levels, count: int) -> bool:
    import numpy as np

    return pixels.dtype == np.uint8 and pixels.shape == (count, 32, 32, 3)


def _are_classes(classes: Levels) -> bool:
    if classes.ndim != 1 or classes.dtype.kind not in "iu" or not classes.size:
        return False
    return bool(0 <= classes.min() <= classes.max() < 10)
