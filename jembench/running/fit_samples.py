"""The generated images of a trained model, and a picture of them."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from jembench.data import grid
from jembench.errors import SpecError
from jembench.experiment.plan import FitPlan
from jembench.interfaces import Evaluation, Samples, Source
from jembench.models.capabilities import capabilities


def check_generative(model: nn.Module, fit: FitPlan, steps: int | None) -> None:
    """Check that a model generates images and, for new chains of ``steps`` steps, has chains.

    Raises:
        SpecError: if it does not.
    """
    if "samples" not in capabilities(model):
        reason = "it neither draws them nor has chains" if fit.is_pretrained else "it is trained without chains"
        raise SpecError(f"{fit.requested} generates no images: {reason}. Choose a model that does.")
    if steps is not None and getattr(model, "chains", "none") == "none":
        raise SpecError(f"{fit.requested} draws its images directly, without a chain. Leave --steps out.")


def samples_of(evaluation: Evaluation, fit: FitPlan, steps: int | None, n: int | None = None) -> Samples:
    """Return the kept or direct samples of a model; with ``steps``, the ends of n new chains.

    Raises:
        SpecError: as for :func:`check_generative`.
    """
    check_generative(evaluation.model, fit, steps)
    return evaluation.samples() if steps is None else evaluation.samples(Source(chains="fresh", steps=steps, images=n))


def write_samples(
    evaluation: Evaluation, samples: Samples, path: Path, columns: int = 10, option: str = "--store"
) -> bool:
    """Write a picture of a model's images, chosen at random, with a row per class.

    The class is the one that an image was drawn for, or else the predicted one; without classes the images are in no
    order. ``option`` is the option of the command line that determines ``path``, for errors.

    Returns:
        True if there is a row per class.
    """
    classes = samples.labels
    if classes is None and "logits" in capabilities(evaluation.model):
        classes = evaluation.predictions.read("logits", samples.images).argmax(1)
    generator = evaluation.services.generator("grid")
    if classes is None:
        chosen = grid.at_random(len(samples.images), columns, generator)
    else:
        chosen = grid.by_class(classes, evaluation.data.spec.num_classes, columns, generator)
    grid.write_png(path, samples.images, chosen, option)
    return classes is not None
