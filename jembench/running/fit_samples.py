"""The generated images of a trained model, and a picture of them."""

from pathlib import Path

import torch
from torch import nn

from jembench.catalog import registry
from jembench.data import grid
from jembench.errors import SpecError
from jembench.experiment.plan import FitPlan
from jembench.interfaces import Evaluation, Samples, Source
from jembench.interfaces.evaluation import KEPT
from jembench.models.capabilities import capabilities, has_energy_gradient


def source_of(model: nn.Module, fit: FitPlan, steps: int | None, sampler: str | None, n: int | None = None) -> Source:
    """Return the source of a model's images: kept or direct ones; with steps or a sampler, the ends of n new chains.

    Raises:
        SpecError: if the model has none of these, or there is no such sampler.
    """
    named = str(registry.resolve("samplers", sampler)) if sampler else None
    if named and has_energy_gradient(model):
        return Source(steps=steps, images=n, sampler=named)
    if "samples" not in capabilities(model):
        remedy = ", or draw from its energy: --sampler sgld:steps=100" if has_energy_gradient(model) else ""
        raise SpecError(f"{fit.requested} generates no images of its own. Choose a model that does{remedy}.")
    if steps is None and named is None:
        return KEPT
    if getattr(model, "chains", "none") == "none":
        raise SpecError(f"{fit.requested} draws its images directly, without a chain. Leave --steps and --sampler out.")
    return Source(chains="fresh", steps=steps, images=n)


def write_samples(
    evaluation: Evaluation, samples: Samples, path: Path, columns: int = 10, option: str = "--store", title: str = ""
) -> bool:
    """Write a picture of a model's images, chosen at random, with a row per class.

    The class is the one that an image was drawn for, or else the predicted one; without classes the images are in no
    order. ``option`` is the option of the command line that determines ``path``, for errors. ``title`` stands above.

    Returns:
        True if there is a row per class.
    """
    classes = samples.labels
    if classes is None and "logits" in capabilities(evaluation.model):
        classes = evaluation.predictions.read("logits", samples.images).argmax(1)
    order = torch.randperm(len(samples.images), generator=evaluation.services.generator("grid")).numpy()
    if classes is None:
        chosen = grid.arranged(order, columns=columns)
    else:
        chosen = grid.first_of_classes(order, classes.numpy(), evaluation.data.spec.num_classes, columns)
    grid.write_png(path, samples.images.numpy(), chosen, option, title)
    return classes is not None
