"""Long chains: the model's sampler, continued far beyond training's number of steps.

Nijkamp et al. (2020), arXiv:1903.12370: short-run chains may look right where long ones do not.

Legend: N chains, T numbers of steps, D features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from jembench.catalog.spec import Scalar
from jembench.interfaces import ChainState, Evaluation, Measurement, Need, Quantity, Resampling
from jembench.metrics.base import MOST, Arrays, Count, OptionalCount, Resamples
from jembench.metrics.sample_protocol import features_spec, pool_of
from jembench.plugin import Estimate, Metric, Names, NotApplicable, SpecError, mean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from jembench.interfaces import Sampler
    from jembench.metrics.base import Array
    from jembench.stats.intervals import Indices

Start = Literal["data", "noise", "buffer"]
LONGEST = 1000
GRID = (10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000, 300_000)
QUANTITIES = ("energy", "nearest", "moved")
SHOWN = 8
"""Chains whose images are kept for the figure."""

BLOCK = 1024
"""The number of training images that chains are compared with at once."""


@dataclass(frozen=True, kw_only=True)
class ChainDrift(Metric):
    """Drift of the model's chains far beyond their length in training.

    The model's own sampler continues them from test images, from noise and from the buffer.

    After 10, 30, 100 ... ``steps`` steps (1,000 by default), or the steps in ``at=5+20+100``, and
    after the steps of training, it measures the mean energy minus the test images'
    (``drift-energy``), FID towards the training images (``drift-fid``), and root mean square
    distances of pixels, on the scale of -1 to 1, to the nearest training image (``drift-nearest``)
    and to the start of the chain (``drift-moved``). Values are given after the steps of training
    and after the most steps, with the start and the number of steps in their labels; the arrays
    have all. ``images`` is the number of chains per start, at most as many as test images and
    chains in the buffer. Few images raise FID: compare it with the FID of test images at step 0.
    ``start`` chooses one start; ``features``: as for ``is``.
    """

    start: Literal["all", "data", "noise", "buffer"] = "all"
    steps: OptionalCount = None
    at: str | None = None
    images: Count = 1000
    features: Annotated[str, Names("features")] = "auto"
    resamples: Resamples = 200
    name: ClassVar[str] = "chain-drift"
    requires: ClassVar[frozenset[Need]] = frozenset({"energy", "chains"})
    reads: ClassVar[frozenset[Quantity]] = frozenset({"energy"})

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.times(0)

    @property
    def protocol_options(self) -> dict[str, Scalar]:
        """The starts. The numbers of steps are another part of the protocol."""
        return {"start": self.start}

    def times(self, trained: int) -> list[int]:
        """Return the numbers of steps from 0 in ascending order.

        The length of a chain in training is among them.

        Raises:
            SpecError: if ``at`` is no list of numbers of steps, or ``steps`` is given too.
        """
        last = self.steps or LONGEST
        if self.at is None:
            numbers = [str(steps) for steps in (*GRID, last) if steps <= last]
        else:
            numbers = self.at.split("+")
        valid = [number.isdecimal() and 0 < int(number) <= MOST for number in numbers]
        both = self.at is not None and self.steps is not None
        if both or not all(valid):
            raise SpecError(
                f"at of {self.name} is {self.at!r}; it must be numbers of steps joined by +, such "
                "as 5+20+100, and steps must then be left out."
            )
        return sorted({0, trained, *map(int, numbers)})

    def compute(self, evaluation: Evaluation) -> Measurement:
        """Run the chains of each start, one after the other."""
        import numpy as np

        from jembench.metrics.densities import energies
        from jembench.parts import chain

        sampler = chain.require_chains(evaluation.sampler)
        times = self.times(sampler.steps)
        real = pool_of(evaluation, self.features, "train", "training images")
        arrays: dict[str, Any] = {"times": np.array(times)}
        arrays["trained"] = np.array(sampler.steps)
        arrays["energy-test"] = energies(evaluation)
        distances = dict[str, Estimate]()
        for start, state in self._starts(evaluation, sampler):
            snapshots = self._run(evaluation, sampler, state, times, start, arrays)
            fids = []
            for images in snapshots:
                pool = pool_of(evaluation, self.features, images, "chains")
                fids.append(_fid(pool, real))
            arrays[f"fid-{start}"] = np.array([fid.value for fid in fids])
            for place in reported(arrays):
                distances[f"drift-fid-{start}-{times[place]}"] = fids[place]
            parts: dict[str, Scalar] = {"images": len(state.x)}
        parts["reference_images"] = len(real)
        parts["at"] = "+".join(map(str, times[1:]))
        features = features_spec(self.features, evaluation.data)
        parts["features"] = evaluation.services.features(features).identity
        estimates = self.estimates(arrays) | distances
        return self.measurement(evaluation, arrays, estimates=estimates, parts=parts)

    def estimates(self, arrays: Arrays) -> dict[str, Estimate]:
        """Return the values after the steps of training and the most steps.

        FID is not among these values.
        """
        test = arrays["energy-test"].astype("float64")
        estimates = dict[str, Estimate]()
        starts = [name.removeprefix("moved-") for name in arrays if name.startswith("moved-")]
        for start in starts:
            for place in reported(arrays):
                energy, nearest, moved = (
                    arrays[f"{quantity}-{start}"][place] for quantity in QUANTITIES
                )

                def above_test(i: Indices, j: Indices, energy: Array = energy) -> Array:
                    return energy[i].mean(axis=1) - test[j].mean(axis=1)

                gap = Resampling(above_test, (len(energy), len(test)))
                of_place = f"{start}-{arrays['times'][place]}"
                estimates[f"drift-energy-{of_place}"] = Estimate(gap, "nats")
                estimates[f"drift-nearest-{of_place}"] = mean(nearest)
                estimates[f"drift-moved-{of_place}"] = mean(moved)
        return estimates

    def _starts(
        self, evaluation: Evaluation, sampler: Sampler
    ) -> Iterator[tuple[Start, ChainState]]:
        """Yield the chosen starts, each with equally many chains.

        Raises:
            NotApplicable: if only the buffer is wanted, and the model has none.
        """
        import torch

        from jembench.data.pixels import to_float
        from jembench.parts import seeds

        test = evaluation.data.part("test")
        kept = sampler.kept()
        bounds = evaluation.data.spec.bounds
        if kept is None and self.start == "buffer":
            raise NotApplicable(
                "The model's sampler keeps no chains to continue. Choose start=noise or start=data."
            )
        n = min(self.images, len(test.images))
        if kept is not None:
            n = min(n, len(kept.x))
        generator = evaluation.services.generator(f"{self.name} starts")
        device = evaluation.device
        buffer_has_classes = kept is not None and kept.y is not None
        conditional = evaluation.model.chains == "conditional" or buffer_has_classes
        x = to_float(test.images[:n], bounds).to(device)
        y = None
        if conditional and test.labels is not None:
            y = test.labels[:n].to(device)
        if self.start in ("all", "data"):
            yield "data", ChainState(x, y)
        if self.start in ("all", "noise"):
            seed = torch.randint(2**62, (), generator=generator)
            on_device = seeds.seeded(int(seed), device)
            yield "noise", sampler.start(n, y, generator=on_device)
        if kept is not None and self.start in ("all", "buffer"):
            chosen = torch.randperm(len(kept.x), generator=generator)[:n]
            y = None if kept.y is None else kept.y[chosen].to(device)
            yield "buffer", ChainState(kept.x[chosen].to(device), y)

    def _run(
        self,
        evaluation: Evaluation,
        sampler: Sampler,
        state: ChainState,
        times: list[int],
        start: str,
        arrays: Any,
    ) -> list[Tensor]:
        """Run chains, record their energies and distances, and return the images."""
        import torch

        from jembench.data.pixels import to_uint8
        from jembench.models.energies import grad_energy
        from jembench.models.predictions import batched
        from jembench.parts import chain, seeds

        data = evaluation.data.spec
        device = evaluation.device
        begin = state.x
        of_start = evaluation.services.generator(f"{self.name} {start}")
        seed = int(torch.randint(2**62, (), generator=of_start))
        gradient = batched(grad_energy(evaluation.model), data)
        generator = seeds.seeded(seed, device)
        train = evaluation.data.images("train")
        scale = data.dimensions**0.5
        recorded: dict[str, list[Tensor]] = {}
        for quantity in (*QUANTITIES, "images"):
            recorded[f"{quantity}-{start}"] = []
        width = data.bounds[1] - data.bounds[0]
        pairs = zip([0, *times], times, strict=False)
        for before, steps in pairs:
            state = chain.run(sampler, state, gradient, generator, steps - before)
            images = to_uint8(state.x, data.bounds).cpu()
            moved = (state.x - begin).flatten(1).norm(dim=1) * 2 / width
            # exact in float64: sums of squares of pixels are whole numbers
            pixels = images.flatten(1).double()
            nearest = []
            for first in range(0, len(train), BLOCK):
                part = train[first : first + BLOCK].flatten(1).double()
                nearest.append(torch.cdist(pixels, part).amin(dim=1))
            distance = torch.stack(nearest).amin(dim=0) / 127.5
            energy, _ = gradient(state.x, state.y)
            values = energy, distance / scale, moved / scale, images
            for history, value in zip(recorded.values(), values, strict=True):
                history.append(value.cpu())
        kept = recorded[f"images-{start}"]
        for name, history in recorded.items():
            arrays[name] = torch.stack(history).numpy()
        arrays[f"images-{start}"] = arrays[f"images-{start}"][:, :SHOWN]
        return kept


def reported(arrays: Arrays) -> list[int]:
    """Return the places of training's number of steps and of the largest."""
    times = arrays["times"].tolist()
    trained = times.index(int(arrays["trained"]))
    return sorted({trained, len(times) - 1})


def _fid(images: Tensor, real: Tensor) -> Estimate:
    """Return FID of features (N, D), with an interval for small D."""
    from jembench.metrics.feature_scores import SMALL, fid, resampled_fid

    sizes = (len(images), len(real)) if images.shape[1] <= SMALL else (1, 1)
    statistic = resampled_fid(images, real)
    resampling = Resampling(statistic, sizes, (0.0, float("inf")))
    return Estimate(resampling, "", "lower", len(images), fid(images, real))
