"""A trained model's generated images: their source, and a picture of them."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch import nn

from jembench.catalog import registry
from jembench.data import grid
from jembench.errors import NotApplicable, SpecError
from jembench.experiment.plan import FitPlan
from jembench.interfaces import Evaluation, Generative, Samples, Source
from jembench.interfaces.evaluation import KEPT
from jembench.models.capabilities import capabilities, has_energy_gradient
from jembench.training import snapshots


def source_of(
    model: nn.Module, fit: FitPlan, steps: int | None, sampler: str | None, n: int | None = None
) -> Source:
    """Return the source of a model's images.

    The images are kept or drawn directly; with steps or a sampler, they end ``n`` new chains.

    Raises:
        SpecError: if the model generates no such images, or there is no such sampler.
    """
    named = str(registry.resolve("samplers", sampler)) if sampler else None
    if named and has_energy_gradient(model):
        return Source(steps=steps, images=n, sampler=named)
    if "samples" not in capabilities(model):
        remedy = ""
        if has_energy_gradient(model):
            remedy = ", or draw from its energy: --sampler sgld:steps=100"
        raise SpecError(
            f"{fit.asked} generates no images of its own. Choose a model that does{remedy}."
        )
    if steps is None and named is None:
        return KEPT
    if getattr(model, "chains", "none") == "none":
        raise SpecError(
            f"{fit.asked} draws its images directly, without a chain. Leave --steps and "
            "--sampler out."
        )
    return Source(chains="fresh", steps=steps, images=n)


def way_of(
    source: Source, model: Any, *, chains: bool, pretrained: bool, buffers: int
) -> Literal["new", "pooled", "direct", "kept"]:
    """Return how a model gives the images of a source.

    The images come from new chains, pooled buffers, the model directly, or kept chains.

    Args:
        source: the source to draw from.
        model: the model that is trained, or will be.
        chains: True if the model has chains.
        pretrained: True if the model was trained elsewhere.
        buffers: the number of buffers that were kept in the last epochs.

    Raises:
        NotApplicable: if the model has no such images.
    """
    if source.sampler and has_energy_gradient(model):
        return "new"
    if source.chains == "fresh" and not chains:
        raise NotApplicable(
            "The model draws its images directly, without a chain, so there are no new chains."
        )
    if source.pooling != "one":
        if not chains:
            raise NotApplicable(
                "The model draws its images directly, without a chain, so there are no chains to "
                "pool."
            )
        if pretrained:
            raise NotApplicable(
                "The model was trained elsewhere: the buffers of its last epochs are not available."
            )
        snapshots.require_five(buffers)
        return "pooled"
    if source.chains == "fresh":
        return "new"
    return "direct" if isinstance(model, Generative) else "kept"


def write_samples(
    evaluation: Evaluation,
    samples: Samples,
    path: Path,
    columns: int = 10,
    option: str = "--store",
    title: str = "",
    texts: Mapping[str, str] = MappingProxyType({}),
) -> bool:
    """Write a picture of random generated images, with a row per class.

    An image's class is the class that it was drawn for, or else the predicted class; without
    classes the order is random. Errors name ``option``, the option of the command line that sets
    ``path``. ``title`` stands above the images, and ``texts`` are in the file's metadata.

    Returns:
        True if there is a row per class.
    """
    classes = samples.labels
    if classes is None and "logits" in capabilities(evaluation.model):
        classes = evaluation.predictions.read("logits", samples.images).argmax(1)
    generator = evaluation.services.generator("grid")
    order = torch.randperm(len(samples.images), generator=generator).numpy()
    if classes is None:
        chosen = grid.arranged(order, columns=columns)
    else:
        number = evaluation.data.spec.num_classes
        chosen = grid.first_of_classes(order, classes.numpy(), number, columns)
    grid.write_png(path, samples.images.numpy(), chosen, option, title, texts)
    return classes is not None
