"""The images that a trained model generates: which ones there are, and a picture of them."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from jembench.data import grid
from jembench.errors import SpecError
from jembench.experiment.plan import FitPlan
from jembench.interfaces import Evaluation, Samples, Source
from jembench.models.capabilities import capabilities


def check(model: nn.Module, fit: FitPlan, steps: int | None) -> None:
    """Refuse a model that generates no images or, for new chains of ``steps`` steps, has no chains.

    Raises:
        SpecError: with the reason.
    """
    if "samples" not in capabilities(model):
        why = "it neither draws them nor has chains" if fit.is_pretrained else "it is trained without chains"
        raise SpecError(f"{fit.key.model} generates no images: {why}. Choose a model that does.")
    if steps is not None and getattr(model, "chains", "none") == "none":
        raise SpecError(f"{fit.key.model} draws its images directly, without a chain. Leave --steps out.")


def samples_of(evaluation: Evaluation, fit: FitPlan, steps: int | None, n: int | None = None) -> Samples:
    """Return the images that the model keeps or draws; with ``steps``, the ends of n new chains.

    Raises:
        SpecError: as :func:`check`.
    """
    check(evaluation.model, fit, steps)
    return evaluation.samples() if steps is None else evaluation.samples(Source(chains="fresh", steps=steps, images=n))


def write_samples(
    evaluation: Evaluation, samples: Samples, path: Path, columns: int = 10, option: str = "--store"
) -> bool:
    """Write a picture of a model's images: a row a class, the one each was drawn for or the one the model sees.

    Those of a model without classes come in no order. Which images are shown is drawn at random; none is selected for
    its looks. ``option`` is the one that leads to ``path``.

    Returns:
        whether there is a row a class.
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
