"""Objects of a running program as components: an ``nn.Module``, a dataset, arrays.

Each object is registered by the plugin ``live`` of this process, under a name that ends with a
digest of the object's content. So different objects do not share results.
"""

from __future__ import annotations

import copy
import re
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jembench.catalog import discovery
from jembench.catalog.discovery import Component, Kind
from jembench.catalog.object_identity import object_digest
from jembench.catalog.options import pretrained
from jembench.errors import Remark, SpecError, error_text

if TYPE_CHECKING:
    from torch import Tensor, nn

    from jembench.interfaces import Dataset, DataSpec
    from jembench.models.adapted import Outputs
    from jembench.models.preparation import Preparation


@dataclass(frozen=True)
class AdaptedNetwork:
    """A network with the input and the outputs that it was trained with."""

    net: nn.Module
    preparation: Preparation
    outputs: Outputs


def adapted(
    net: nn.Module,
    *,
    bounds: Sequence[float] = (0, 1),
    mean: float | Sequence[float] = 0.0,
    std: float | Sequence[float] = 1.0,
    size: int | None = None,
    outputs: Outputs = None,
) -> AdaptedNetwork:
    """Return a network with an input and outputs of its own, for :func:`run` and :func:`attack`.

    jembench's images get the range and the normalisation of the network, with gradients, and its
    outputs become those of the classes. The network is measured without training.

    Args:
        net: a model, or a network that returns logits.
        bounds: the network's values of a black and of a white pixel, before the normalisation.
        mean: subtracted from these values: one number, or one per channel. With three numbers, grey
            images are shown as three equal channels.
        std: divides the difference: one number, or one per channel.
        size: of square images in pixels, to which images are resized (bicubic); None: as they are.
        outputs: the names of the outputs in their order, or a mapping from places to names, or the
            number of each class's output, or a JSON file of one of these; None: as many outputs as
            classes, in the order of the classes.

    Raises:
        SpecError: if a value has another form.

    Example:
        >>> mine = adapted(model, bounds=(0, 255), outputs=list(map(str, range(10))))
        >>> results = run("hybrid", models=mine, datasets=arrays, metrics="accuracy", store=folder)
    """
    from jembench.models.adapted import read_outputs
    from jembench.models.preparation import preparation

    form = preparation(bounds, mean, std, size)
    return AdaptedNetwork(net, form, read_outputs(outputs))


def model_spec(model: object) -> str:
    """Return the spec of a model, which may be a module.

    A module is copied, and never changed. A :class:`jembench.interfaces.Trainable` is trained from
    its present weights and a :class:`jembench.interfaces.Fittable` is fitted; other modules are
    measured without training.

    Raises:
        SpecError: if the model is neither a spec nor a module, or cannot be copied.
    """
    if isinstance(model, str):
        return model
    form: tuple[Any, ...] = ()
    if isinstance(model, AdaptedNetwork):
        form = (model.preparation, model.outputs)
        model = model.net
    from torch import nn

    from jembench.interfaces import Fittable, Trainable

    name = type(model).__name__
    if not isinstance(model, nn.Module):
        remedy = ""
        if isinstance(model, type):
            remedy = (
                f" Give an object of the class: {model.__name__}(), or, to make it as on the "
                f'command line, the text "{model.__module__}:{model.__name__}".'
            )
        raise SpecError(
            f"A model is given as {name}; it must be a spec, a torch.nn.Module or, for attack(), "
            f"a jembench.Fit.{remedy}"
        )
    kept = _copy(model)

    def factory(data: DataSpec) -> nn.Module:
        made = copy.deepcopy(kept)
        for weight in made.parameters():
            # PyTorch computes the weights of a copied script from the original
            if not weight.is_leaf:
                weight.detach_().requires_grad_()
        if not form:
            return made
        from jembench.models.adapted import adapted

        return adapted(name, lambda _: made, data, *form)

    digest, unknown = object_digest((kept, _global_hooks(), *map(repr, form)))
    if unknown:
        warnings.warn(
            f"The model {name} has parts that cannot be compared: {', '.join(unknown[:3])}. Its "
            "results are kept under a name of their own, and no other run uses them again.",
            Remark,
            stacklevel=2,
        )
        digest = uuid.uuid4().hex
    if form or not isinstance(model, (Trainable, Fittable)):
        pretrained(factory)
    return _add("models", type(kept).__name__, digest, factory)


def _copy(model: nn.Module) -> nn.Module:
    """Return a copy of a module, without torch.compile's wrapper.

    Raises:
        SpecError: if copying fails, the copy shares memory with the module, or weights have no
            values.
    """
    from torch import Tensor
    from torch.nn.parameter import is_lazy

    if type(model).__module__.startswith("torch._dynamo"):
        model = model.get_submodule("_orig_mod")
    memo: dict[int, Any] = {}
    for part in model.modules():
        for value in vars(part).values():
            # PyTorch does not copy outputs of a forward pass
            if isinstance(value, Tensor) and not value.is_leaf:
                memo[id(value)] = value.detach().clone()
    name = type(model).__name__
    if any(is_lazy(tensor) or tensor.is_meta for tensor in _tensors(model)):
        raise SpecError(
            f"The model {name} has weights without values, as those of LazyLinear before its "
            "first images, or those on the device meta. Call it once with images, and train it "
            "or load its weights."
        )
    try:
        kept: nn.Module = copy.deepcopy(model, memo)
    except Exception as error:
        raise SpecError(
            f"The model {name} cannot be copied: {error_text(error)}. Remove what cannot be copied "
            "from its attributes, such as locks, open files and outputs of a forward pass."
        ) from error
    if kept is model or _addresses(model) & _addresses(kept):
        raise SpecError(
            f"A copy of the model {name} has the same tensors, so later changes would change "
            "the copy. The class must not define __deepcopy__ in this way."
        )
    return kept


def _tensors(model: nn.Module) -> Iterator[Tensor]:
    yield from model.parameters()
    yield from model.buffers()


def _addresses(model: nn.Module) -> set[int]:
    """Return the addresses of a model's tensors that are not empty."""
    return {tensor.data_ptr() for tensor in _tensors(model)} - {0}


def _global_hooks() -> list[Any]:
    """Return the hooks that PyTorch calls for every module."""
    from torch.nn.modules import module

    return [*module._global_forward_pre_hooks.values(), *module._global_forward_hooks.values()]


def dataset_spec(data: object) -> str:
    """Return the spec of a dataset, which may be an object or arrays.

    Arrays are a mapping ``{"train": (images, labels), "test": (images, labels)}``: images uint8
    (N, C, H, W) or (N, H, W), labels whole numbers (N,) from 0, names of classes, or None. A
    ``TensorDataset`` may replace a pair, and so may a map-style ``Dataset`` of pairs, which is read
    once with its transforms: images are then uint8 or floats from 0 to 1, and the ``classes`` of
    the ``Dataset`` name the classes. Images and labels are copied.

    Raises:
        SpecError: if the data are none of these, or arrays have other shapes.
    """
    if isinstance(data, str):
        return data
    from jembench.data.arrays import ADVICE, of_arrays, of_dataset
    from jembench.interfaces import Dataset

    if isinstance(data, Mapping):
        made = of_arrays(data)
    elif isinstance(data, Dataset) and not isinstance(data, type):
        made = of_dataset(data)
    else:
        raise SpecError(
            f"A dataset is given as {type(data).__name__}, which has no train and test parts. "
            f"{ADVICE}"
        )

    def factory() -> Dataset:
        return made

    splits = [made.split("train"), made.split("test")]
    digest, unknown = object_digest((repr(made.spec), splits, made.truth))
    if unknown:
        digest = uuid.uuid4().hex
    return _add("datasets", made.spec.name, digest, factory)


_factories: dict[str, Callable[..., Any]] = {}
"""The factories of this process's objects, by their components' attributes."""


def __getattr__(name: str) -> Any:
    """Return the factory of an object, for the registry."""
    if name in _factories:
        return _factories[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _add(kind: Kind, name: str, digest: str, factory: Callable[..., Any]) -> str:
    """Add an object's factory to the components, and return its spec."""
    words = re.sub(r"[^A-Za-z0-9_]+", "-", name).strip("-")
    spec = f"{words or 'object'}-{digest[:10]}"
    attribute = f"{kind}_{digest}"
    _factories[attribute] = factory
    component = Component(kind, spec, discovery.LIVE, "", __name__, attribute)
    if component not in discovery.added:
        discovery.added.append(component)
        discovery.catalogue.cache_clear()
    return spec
