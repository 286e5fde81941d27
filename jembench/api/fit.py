"""Trained models from Python, with their samples, logits, energies and densities."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from jembench.api.arguments import checked
from jembench.errors import NotApplicable, SpecError, error_text
from jembench.experiment.plan import FitPlan
from jembench.store.store import Store

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import Tensor, nn

    from jembench.experiment.recipe import Recipe
    from jembench.interfaces import DataSpec, Evaluation, Sampler, Samples


class Fit:
    """A trained model of a store, ready for use.

    Attributes:
        model: the ``torch.nn.Module`` in evaluation mode, on ``device``. It takes float32 images
            (B, C, H, W) within ``data.bounds``.
        sampler: the sampler of the model's chains, as training left it; None if the model was
            trained without chains.
        data: the description of the images.
        device: that the model is on.
        plan: model, dataset, recipe and seed, with their identities.
        folder: of the fit's files.
    """

    def __init__(self, plan: FitPlan, store: Store, evaluation: Evaluation) -> None:
        self.plan = plan
        self.store = store
        self.folder: Path = store.fit_folder(plan.key)
        self.model: nn.Module = evaluation.model
        self.sampler: Sampler | None = evaluation.sampler
        self.data: DataSpec = evaluation.data.spec
        self.device: torch.device = evaluation.device
        self._evaluation = evaluation

    @property
    def recipe(self) -> Recipe:
        """The recipe of the training."""
        return self.plan.recipe

    def __repr__(self) -> str:
        return f"<Fit {self.plan}>"

    @checked
    def sample(self, n: int, steps: int | None = None, sampler: str | None = None) -> Samples:
        """Return images of the model, the same in each call.

        Args:
            n: the number of images.
            steps: the length of new chains; None: n random images of the buffer, or of the model's
                direct samples.
            sampler: the spec of a sampler for new chains, ``sgld:steps=100``; the model needs a
                differentiable energy.

        Returns:
            the images, uint8 (n, C, H, W) on the CPU, and each image's class if its chain was
            conditioned on a class.

        Raises:
            SpecError: if the model generates no images or has no chains, or keeps fewer images.

        Example:
            >>> fit.sample(4, steps=5).images.shape
            torch.Size([4, 1, 4, 4])
        """
        from jembench.running import fit_samples

        source = fit_samples.source_of(self.model, self.plan, steps, sampler, n)
        samples = self._evaluation.samples(source)
        if len(samples.images) < n:
            raise SpecError(
                f"{self.plan.key.model} keeps {len(samples.images)} images, fewer than {n}. Give "
                "steps=."
            )
        if len(samples.images) == n:
            return samples
        import torch

        generator = self._evaluation.services.generator("chosen samples")
        chosen = torch.randperm(len(samples.images), generator=generator)[:n]
        labels, ages = samples.labels, samples.ages
        if labels is not None:
            labels = labels[chosen]
        if ages is not None:
            ages = ages[chosen]
        return samples._replace(images=samples.images[chosen], labels=labels, ages=ages)

    def logits(self, x: Tensor | np.ndarray[Any, Any]) -> Tensor:
        """Return the logits of p(y|x).

        Args:
            x: images (N, C, H, W): uint8 pixels, or floats within ``data.bounds``.

        Returns:
            float32 (N, K) on the CPU, without gradients; use ``model`` for gradients.

        Raises:
            SpecError: if the images have another shape or exceed the bounds.
            NotApplicable: if the model does not classify.

        Example:
            >>> fit.logits(images).shape
            torch.Size([3, 3])
        """
        return self._read("logits", x, "does not classify")

    def energy(self, x: Tensor | np.ndarray[Any, Any]) -> Tensor:
        """Return the energy E(x) in nats, up to a constant.

        Arguments and errors are those of :meth:`logits`; without an energy, NotApplicable.

        For a JEM, E(x) is -logsumexp of the logits (Grathwohl et al., 2020, equation 7); for a
        model with a normalised density, it is -log p(x). A lower energy means a higher density.

        Returns:
            float32 (N,) on the CPU.

        Example:
            >>> fit.energy(images).shape
            torch.Size([3])
        """
        return self._read("energy", x, "has no energy")

    def log_prob(self, x: Tensor | np.ndarray[Any, Any]) -> Tensor:
        """Return the normalised log p(x) in nats per image.

        Arguments are those of :meth:`logits`.

        Returns:
            float32 (N,) on the CPU.

        Raises:
            NotApplicable: if the model's density is not normalised, as for an energy-based model.

        Example:
            >>> fit.log_prob(images)
            Traceback (most recent call last):
            jembench.errors.NotApplicable: ...
        """
        from jembench.interfaces import Density

        if not isinstance(self.model, Density):
            raise NotApplicable(
                f"{self.plan.key.model} has no normalised density. -fit.energy(x) is log p(x) up "
                "to a constant."
            )
        return -self.energy(x)

    def _read(self, quantity: Any, x: Tensor | np.ndarray[Any, Any], lacks: str) -> Tensor:
        """Check the images, and return the model's ``quantity`` for each."""
        import torch

        from jembench.models import predictions
        from jembench.models.capabilities import capabilities

        if quantity not in capabilities(self.model):
            raise NotApplicable(f"{self.plan.key.model} {lacks}.")
        try:
            images = torch.as_tensor(x).detach().cpu()
        except Exception as error:
            raise SpecError(
                f"The images are given as {type(x).__name__}: {error_text(error)}."
            ) from error
        if images.ndim != 4 or tuple(images.shape[1:]) != self.data.shape:
            wanted = ", ".join(map(str, self.data.shape))
            raise SpecError(
                f"The images have the shape {tuple(images.shape)}; it must be (N, {wanted})."
            )
        if images.dtype != torch.uint8:
            low, high = self.data.bounds
            if not images.is_floating_point() or not ((images >= low) & (images <= high)).all():
                raise SpecError(
                    f"The images are {images.dtype}; they must be uint8, or floats from {low:g} "
                    f"to {high:g}."
                )
            images = images.float()
        return predictions.read(self.model, images, self.data, self.device, {quantity})[quantity]
