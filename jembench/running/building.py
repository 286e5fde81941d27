"""The model of a fit before its training, and its trainer."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, get_args

import torch
from torch import nn

from jembench import seeds
from jembench.data.datasets import count, no_training_images
from jembench.data.holdout import Holdout, holdout
from jembench.data.images import check_small, loaded
from jembench.data.pixels import to_float
from jembench.errors import Diverged, JembenchError, PluginError, error_text
from jembench.experiment.plan import FitPlan
from jembench.interfaces import Chains, Dataset, Trainable
from jembench.models.capabilities import is_fitted
from jembench.models.labels import named_elsewhere
from jembench.models.memory import check_memory
from jembench.models.objective import as_model
from jembench.models.settings import isolated
from jembench.training.loop import Trainer

CPU = torch.device("cpu")


def make_model(
    fit: FitPlan,
    dataset: Dataset,
    note: Callable[[str], object] | None = None,
    device: torch.device | None = None,
) -> Any:
    """Make a fit's model before training, deterministically.

    Parts outside of its state dictionary are made deterministically too. A network without the
    methods of a model becomes a classifier. ``note`` is passed to
    :func:`~jembench.models.settings.isolated`; ``device`` is the training's, by default the CPU.

    Raises:
        SpecError: if the model does not fit into the device's memory.
        NotApplicable: if the model must be trained, and the dataset has only test images.
        PluginError: if its factory fails or returns no model, or if the model cannot be trained and
            is not marked as pretrained.
    """
    device, data, name = device or CPU, dataset.spec, f"The model {fit.asked}"
    if not fit.is_pretrained and count(dataset, "train") == 0:
        raise no_training_images(data.name, f"{fit.asked} must be trained")
    try:
        if not fit.is_pretrained:
            check_memory(lambda: fit.model.make(data), name, device)
        within = isolated(f"The factory of {fit.asked}", note)
        said = named_elsewhere() if fit.recipe.source else nullcontext()  # by the import
        with within, said, seeds.drawing(fit.seed, "initialisation"):
            # seeded too, since the first pass of a network may create weights
            model = as_model(fit.model.make(data), data, fit.asked)
    except JembenchError:
        raise
    except Exception as error:
        raise PluginError(
            f"{name} cannot be made for {data.name}: {error_text(error)}. Its factory is "
            f"{fit.model.component.target}; `jembench --debug` shows where it fails."
        ) from error

    if not isinstance(model, nn.Module):
        raise PluginError(
            f"{name} is of type {type(model).__name__}; it must be a torch.nn.Module."
        )
    obstacle = _obstacle(model)
    if obstacle and not fit.is_pretrained and not is_fitted(model):
        raise PluginError(
            f"{name} cannot be trained: {obstacle}. If it has been trained elsewhere, mark its "
            "factory: @jembench.plugin.pretrained."
        )
    if getattr(model, "chains", "none") not in get_args(Chains):
        raise PluginError(
            f"{name} asks for {model.chains!r} chains; it must be {' or '.join(get_args(Chains))}."
        )
    return model


def _obstacle(model: nn.Module) -> str:
    """Return why a model cannot be trained; "": it can."""
    if not isinstance(model, Trainable):
        return (
            f"{type(model).__name__} lacks `chains` and `training_loss` "
            "(jembench.interfaces.Trainable)"
        )
    if not any(parameter.requires_grad for parameter in model.parameters()):
        return "none of its parameters requires a gradient (requires_grad)"
    if not all(parameter.is_floating_point() for parameter in model.parameters()):
        return "some of its parameters are not floating-point numbers, which optimisers need"
    return ""


def make_trainer(fit: FitPlan, dataset: Dataset, device: torch.device, model: Any) -> Trainer:
    """Make a fit's trainer before its first iteration.

    Raises:
        SpecError: if the dataset has no labels, or batches cannot be divided among the processes.
        PluginError: if the model fails on images of the dataset's shape.
    """
    data = dataset.spec
    try:
        return Trainer(
            model, data, dataset.split("train"), fit.recipe, seed=fit.seed, device=device
        )
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:  # of the network's first pass
        raise PluginError(
            f"The model {fit.asked} fails on the images of {data.name}, "
            f"{'x'.join(map(str, data.shape))} numbers each: {error}. Choose a network and a "
            "dataset that fit together."
        ) from error


def held_out(fit: FitPlan, dataset: Dataset) -> Holdout:
    """Return a fit's training and validation images."""
    options = fit.recipe.data
    return holdout(dataset.split("train"), options.validation, stratified=options.stratified)


def fit_at_once(model: Any, fit: FitPlan, dataset: Dataset) -> None:
    """Fit a :class:`~jembench.interfaces.Fittable` model to the training images.

    Validation images are left out.

    Raises:
        PluginError: if the model's ``fit`` fails, or the model has no buffers.
        Diverged: if values in the buffers are not finite.
    """
    train = held_out(fit, dataset).train
    try:
        with torch.no_grad():
            check_small(train.images, f"The model {fit.asked}")
            x = to_float(loaded(train.images), dataset.spec.bounds)
            model.fit(x, train.labels, generator=seeds.generator(fit.seed, "fit"))
    except JembenchError:
        raise
    except Exception as error:
        raise PluginError(
            f"The model {fit.asked} cannot be fitted to {len(train.images)} images of "
            f"{dataset.spec.name}: {error_text(error)}. `jembench --debug` shows where it fails."
        ) from error
    state = model.state_dict()
    if not state:
        raise PluginError(
            f"fit of {fit.asked} left nothing in the model's buffers, and nothing else is "
            "stored. Store its result in buffers (register_buffer)."
        )
    not_finite = [name for name, values in state.items() if not values.isfinite().all()]
    if not_finite:
        raise Diverged(
            f"fit of {fit.asked} left values that are not finite in {', '.join(not_finite[:3])}."
        )
