"""Images that are read when they are needed, for splits too large for memory.

Legend: N images, B images of a part, C channels, H height, W width.
"""

import copy
import functools
import math
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from jaxtyping import Bool, Int, UInt8
from torch import Tensor
from torch.utils._pytree import tree_leaves

from jembench import limits
from jembench.errors import Unavailable

Read = Callable[[Int[Tensor, " B"]], UInt8[Tensor, "B C H W"]]
"""The function that reads the images of row numbers."""

Drawer = TypeVar("Drawer")
"""A generator of random numbers, of PyTorch or NumPy."""


class Images(Tensor):
    """A tensor (N, C, H, W) without memory, whose images are read when it is indexed.

    Indexing the first dimension gives plain tensors; :func:`taken` selects without reading. Shape,
    type and length are those of any tensor. Any other operation on pixels needs all images.

    Args:
        read: the function that reads images.
        rows: the row number of each image.
        shape: of an image (C, H, W).
        dtype: of the pixels.

    Raises:
        Unavailable: by every operation that needs all images in memory.
    """

    # metadata needs no pixels
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]
    read: Read
    rows: Tensor
    hash: str | None  # of the content, once it is known

    @staticmethod
    def __new__(
        cls,
        read: Read,
        rows: Tensor,
        shape: tuple[int, ...],
        dtype: torch.dtype = torch.uint8,
    ) -> "Images":
        """Make a tensor of a shape and a type, without memory."""
        images: Images = Tensor._make_wrapper_subclass(cls, (len(rows), *shape), dtype=dtype)
        images.read, images.rows, images.hash = read, rows, None
        return images

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Refuse an operation on the pixels of all images."""
        values = tree_leaves([args, kwargs])
        images = next(value for value in values if isinstance(value, Images))
        raise images.too_large()

    def __getitem__(self, rows: Any) -> Tensor:
        """Read the images of rows, (B, C, H, W), or one image, (C, H, W)."""
        if isinstance(rows, tuple):
            raise self.too_large()
        if isinstance(rows, Tensor):
            rows = rows.cpu()
        chosen = self.rows[rows]
        pixels = self.read(chosen.reshape(-1))
        return pixels.reshape(*chosen.shape, *self.shape[1:])

    def __repr__(self, **options: Any) -> str:  # type: ignore[override]
        """Return the shape, without pixels."""
        return f"Images({tuple(self.shape)})"

    # a dispatch would import torch.distributed.tensor, which takes a second and 60 MB
    def clone(self, **options: Any) -> "Images":
        """Return these images, since nothing can change them."""
        return self

    detach = clone

    def numpy(self, *, force: bool = False) -> Any:
        """Refuse to read all images."""
        raise self.too_large()

    @property
    def is_small(self) -> bool:
        """True if the images may be held in memory."""
        return are_small(len(self), tuple(self.shape[1:]))

    def in_parts(self) -> Iterator[Tensor]:
        """Yield all images as plain tensors, for a digest of the content."""
        return parts(self)

    def too_large(self, what: str = "This") -> Unavailable:
        """Return the error for what needs all images at once."""
        size = self.nbytes / limits.GIB
        return Unavailable(
            f"{what} needs all {len(self):,} images in memory, {size:.2g} GiB, and they are read "
            "in parts. Use fewer images (--limit for test images), or raise the environment "
            f"variable {limits.IMAGES.variable}."
        )


def by_rows(read: Read, rows: Int[Tensor, " N"], shape: tuple[int, ...]) -> UInt8[Tensor, "N ..."]:
    """Return the images of rows: read now where they are small, or else :class:`Images`.

    The limit ``JEMBENCH_IMAGES_GIB`` says what is small. No result depends on this limit.
    """
    return loaded(Images(read, rows, shape))


def chosen(images: Tensor, rows: Int[Tensor, " B"] | Bool[Tensor, " N"]) -> Tensor:
    """Return the images of rows; those of :class:`Images` are not read."""
    if isinstance(images, Images):
        return Images(images.read, images.rows[rows.cpu()], tuple(images.shape[1:]), images.dtype)
    return images[rows]


def taken(images: Tensor, rows: Int[Tensor, " B"] | Bool[Tensor, " N"]) -> Tensor:
    """Return the images of rows, which are read now where they are small."""
    return loaded(chosen(images, rows))


def loaded(images: Tensor) -> Tensor:
    """Return the images, read now where they are small; see :func:`by_rows`."""
    if isinstance(images, Images) and images.is_small:
        return images[:]
    return images


def are_small(count: int, shape: tuple[int, ...]) -> bool:
    """Return whether images of a shape (C, H, W) lie in memory."""
    return count * math.prod(shape) <= limits.IMAGES.value * limits.GIB


def read_rows(
    descriptor: int, rows: Int[Tensor, " B"], shape: tuple[int, ...], start: int = 0
) -> UInt8[Tensor, "B ..."]:
    """Read the images of rows from a file of pixels.

    Args:
        descriptor: of the file.
        rows: of the images.
        shape: of an image (C, H, W).
        start: the place of the first image in the file.

    Raises:
        EOFError: if the file ends before an image does.
    """
    images = torch.empty((len(rows), *shape), dtype=torch.uint8)
    size = math.prod(shape)
    for row, pixels in zip(rows.tolist(), images.numpy(), strict=True):
        if os.preadv(descriptor, [pixels.data], start + row * size) < size:
            raise EOFError(f"it ends before image {row}")
    return images


def check_small(images: Tensor, what: str) -> None:
    """Check that images are in memory or small, for what needs all of them at once.

    Raises:
        Unavailable: if they are not.
    """
    if isinstance(images, Images) and not images.is_small:
        raise images.too_large(what)


def copied(images: Tensor) -> Tensor:
    """Return a copy, which takes memory only once the copy or the original is changed."""
    if isinstance(images, Images):
        return images
    try:
        return torch._lazy_clone(images)
    # the function is private to PyTorch, and needs memory that PyTorch has allocated
    except (AttributeError, RuntimeError):
        return images.clone()


def changed(
    images: Tensor,
    change: Callable[[Tensor, Tensor], Tensor],
    shape: tuple[int, ...] | None = None,
    dtype: torch.dtype = torch.uint8,
) -> Tensor:
    """Return changed images; :class:`Images` are changed as they are read.

    Args:
        images: of any kind.
        change: the function of images and of their places among all, which changes each image by
            itself.
        shape: of a changed image (C, H, W); None: as before.
        dtype: of changed pixels.
    """
    places = torch.arange(len(images))
    if not isinstance(images, Images):
        return change(images, places)

    def read(rows: Tensor) -> Tensor:
        return change(images[rows], rows)

    return Images(read, places, shape or tuple(images.shape[1:]), dtype)


def drawn(
    images: Tensor,
    draw: Callable[[slice, Drawer], Tensor],
    generator: Drawer,
    shape: tuple[int, ...],
    size: int = 256,
) -> UInt8[Tensor, "N ..."]:
    """Return an image for each of ``images``, which one generator draws part after part.

    The result is :class:`Images` if ``images`` are; a part is drawn again whenever it is read.

    Args:
        images: of any kind.
        draw: the function of a part's places and of the generator.
        generator: the generator of the first part; later parts continue it.
        shape: of a drawn image (C, H, W).
        size: number of images of a part; the last one has the remainder too.
    """
    count = len(images)
    last = max(0, count // size - 1)
    generators = [generator]  # before each part that was reached

    @functools.lru_cache(maxsize=1)
    def part(number: int) -> Tensor:
        for reached in range(min(number, len(generators) - 1), number + 1):
            following = copy.deepcopy(generators[reached])
            end = count if reached == last else (reached + 1) * size
            pixels = draw(slice(reached * size, end), following)
            if reached + 1 == len(generators):
                generators.append(following)
        return pixels

    def read(rows: Tensor) -> Tensor:
        pixels = torch.empty((len(rows), *shape), dtype=torch.uint8)
        numbers = (rows // size).clamp(max=last)
        for number in sorted(set(numbers.tolist())):
            inside = numbers == number
            pixels[inside] = part(number)[rows[inside] - number * size]
        return pixels

    made = Images(read, torch.arange(count), shape)
    if isinstance(images, Images):
        return made
    return made[:]


def parts(images: Tensor, size: int = 256) -> Iterator[Tensor]:
    """Yield the images in parts of ``size``, as plain tensors."""
    for start in range(0, len(images), size):
        yield images[start : start + size]


def on_device(images: Tensor, device: torch.device) -> Tensor:
    """Return images on a device.

    :class:`Images` that do not fit in a quarter of a GPU's memory stay, and are read in parts.
    """
    if not isinstance(images, Images):
        return images.to(device)
    if device.type != "cuda":
        return images
    if images.nbytes > torch.cuda.get_device_properties(device).total_memory // 4:
        return images
    whole = torch.empty(images.shape, dtype=images.dtype, device=device)
    for place, part in zip(parts(whole), parts(images), strict=True):
        place.copy_(part)
    return whole
