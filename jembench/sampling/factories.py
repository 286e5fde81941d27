"""The samplers that core registers. Nothing heavy is imported until a sampler is made.

Step sizes, noise and clip are in the units of ``DataSpec.bounds`` and of dE/dx there. ``start`` is
the spec of the start of new chains (`jembench list starts`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from jembench.catalog import registry
from jembench.catalog.options import Names, Neutral
from jembench.catalog.spec import split_list
from jembench.catalog.validation import Range, read_text
from jembench.errors import SpecError

if TYPE_CHECKING:
    from jembench.interfaces import DataSpec, Start
    from jembench.sampling.outliers import ImagesStart, MixtureStart, PermutedStart, ShapesStart
    from jembench.sampling.pcd import PersistentChains
    from jembench.sampling.sgld import ShortRun
    from jembench.sampling.starts import ClassGaussianStart, UniformStart

Count = Annotated[int, Range(least=1)]
Positive = Annotated[float, Range(above=0)]
Slots = Annotated[int, Range(least=1, most=100_000_000)]
"""Images of a replay buffer."""
StartSpec = Annotated[str, Names("starts")]


def sgld(
    data: DataSpec,
    *,
    steps: Count = 100,
    step_size: Positive = 1.0,
    noise: Annotated[float, Range(least=0)] = 0.01,
    clip: Positive | None = None,
    bounded: bool = False,
    momentum: Annotated[float, Range(least=0, below=1), Neutral()] = 0.0,
    start: StartSpec = "uniform",
) -> ShortRun:
    """Short-run SGLD: every chain starts anew, from uniform noise by default.

    ``clip`` clamps every element of the gradient to [-clip, clip]; ``bounded`` clamps the images
    after every step. ``momentum`` is the share of the earlier steps' gradients that is added to the
    gradient.
    """
    from jembench.sampling.sgld import Langevin, ShortRun

    bounds = data.bounds if bounded else None
    langevin = Langevin(
        steps=steps, step_size=step_size, noise=noise, clip=clip, bounds=bounds, momentum=momentum
    )
    return ShortRun(data, langevin, _start(start, data))


def pcd(
    data: DataSpec,
    *,
    steps: Count = 20,
    step_size: Positive = 1.0,
    noise: Annotated[float, Range(least=0)] = 0.01,
    clip: Positive | None = None,
    bounded: bool = False,
    buffer: Slots = 10_000,
    reinit: Annotated[float, Range(least=0, most=1)] = 0.05,
    start: StartSpec = "uniform",
) -> PersistentChains:
    """Persistent chains (SGLD) from a replay buffer.

    A share ``reinit`` of the chains restarts from noise, uniform by default.

    ``clip`` clamps every element of the gradient to [-clip, clip]; ``bounded`` clamps the images
    after every step. SADA-JEM (Yang, Su & Ji, 2023) has steps=10, noise=0, clip=1, bounded=true,
    start=class-gaussian.
    """
    from jembench.sampling.pcd import PersistentChains
    from jembench.sampling.sgld import Langevin

    bounds = data.bounds if bounded else None
    langevin = Langevin(steps=steps, step_size=step_size, noise=noise, clip=clip, bounds=bounds)
    return PersistentChains(data, langevin, _start(start, data), buffer_size=buffer, reinit=reinit)


def proximal(
    data: DataSpec,
    *,
    outer: Count = 10,
    inner: Count = 5,
    step_size: Positive = 0.2,
    clip: Positive = 1.0,
    buffer: Slots = 10_000,
    reinit: Annotated[float, Range(least=0, most=1)] = 0.05,
    start: StartSpec = "class-gaussian",
) -> PersistentChains:
    """JEM++'s proximal sampler (Yang & Ji, 2021).

    It takes ``outer`` network passes, each followed by ``inner`` cheap steps.

    Each outer step computes p = dE/dh at the first layer's output h and holds p fixed while the
    inner steps repeat x <- clamp(x - step_size clamp(J(x)^T p, -clip, clip), low, high), J = dh/dx,
    through the first layer only. Since this layer is linear, J is the same at every x, and J^T p is
    dE/dx at the outer point throughout. Every inner step moves a pixel by the same amount, and a
    pixel at a bound stays there. The inner loop is therefore computed as one step of size inner *
    step_size on the clipped gradient, clamped once: a Langevin step without noise.
    """
    from jembench.sampling.pcd import PersistentChains
    from jembench.sampling.sgld import Langevin

    langevin = Langevin(
        steps=outer, step_size=inner * step_size, noise=0.0, clip=clip, bounds=data.bounds
    )
    return PersistentChains(data, langevin, _start(start, data), buffer_size=buffer, reinit=reinit)


def ascent(
    data: DataSpec,
    *,
    steps: Annotated[int, Range(least=0)] = 10,
    step_size: Positive = 0.1,
    noise: Annotated[float, Range(least=0)] = 0.0,
    start: StartSpec = "uniform",
) -> ShortRun:
    """Ascent of log p(x) by steps of fixed length, from new starts, in bounds (DAT).

    The steps follow the gradient.

    ``step_size`` is the L2 norm of a step of each image, in units of a pixel's range, as the radius
    of an attack is. With ``steps=0`` the samples are the starts themselves: outliers.
    """
    from jembench.sampling.sgld import Langevin, ShortRun

    length = step_size * (data.bounds[1] - data.bounds[0])
    langevin = Langevin(
        steps=steps, step_size=length, noise=noise, bounds=data.bounds, normalised=True
    )
    return ShortRun(data, langevin, _start(start, data))


def uniform_start(data: DataSpec) -> UniformStart:
    """Independent pixels, uniform within the bounds."""
    from jembench.sampling.starts import UniformStart

    return UniformStart(data)


def class_gaussian_start(data: DataSpec) -> ClassGaussianStart:
    """Images drawn from a Gaussian per class, fitted to its training images (JEM++)."""
    from jembench.sampling.starts import ClassGaussianStart

    return ClassGaussianStart(data)


def images_start(
    data: DataSpec, *, set: Annotated[str, Names("ood_sets", "datasets")] = ""
) -> ImagesStart:
    """Training images of another dataset, or an OOD set of the training images.

    By default they are the training images themselves.
    """
    from jembench.data.ood_sets.resolve import resolve
    from jembench.sampling.outliers import ImagesStart

    return ImagesStart(data, resolve(set).make("train") if set else None)


def permuted_start(data: DataSpec) -> PermutedStart:
    """Training images, the pixels of each in a new random order."""
    from jembench.sampling.outliers import PermutedStart

    return PermutedStart(data)


def shapes_start(data: DataSpec) -> ShapesStart:
    """Images of low complexity: one colour, or two with an outline between them.

    The outline is sharp or soft.
    """
    from jembench.sampling.outliers import ShapesStart

    return ShapesStart(data)


def mixture_start(data: DataSpec, *, starts: StartSpec, weights: str = "") -> MixtureStart:
    """A mixture of starts, such as "uniform,permuted,shapes".

    Weights are written "2,1,1", and equal by default.
    """
    from jembench.sampling.outliers import MixtureStart

    parts = [_start(text, data) for text in split_list(starts)]
    texts = weights.split(",") if weights else ["1"] * len(parts)
    if not parts or len(texts) != len(parts):
        raise SpecError(
            f"mixture has {len(parts)} starts and {len(texts)} weights; each start needs one "
            "weight."
        )
    numbers: list[float] = []
    for text in texts:
        numbers.append(read_text(text, Positive, "a weight of mixture"))  # type: ignore
    return MixtureStart(data, parts, numbers)


def _start(spec: str, data: DataSpec) -> Start:
    """Make the start of chains that a spec names."""
    start: Start = registry.resolve("starts", spec).make(data)
    return start
