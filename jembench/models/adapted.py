"""Networks that were trained elsewhere, on images and classes of their own form.

Legend: B batch, N samples, C channels, H height, W width, K classes of the data; c, h, w: of the
network's input.
"""

import json
import reprlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from jembench.errors import PluginError, SpecError, error_text
from jembench.files import path_of
from jembench.interfaces import Batch, Chains, DataSpec, Loss, Negatives
from jembench.models.capabilities import capabilities
from jembench.models.energies import LogitModel, energy_function, logits_in
from jembench.models.labels import in_order, outputs_of_classes
from jembench.models.nets import shape_of_logits
from jembench.models.objective import Weights, as_model, hybrid_loss, to_full_precision
from jembench.models.predictions import energy_follows_from_logits
from jembench.models.preparation import Preparation

Outputs = str | Path | Mapping[Any, str] | Sequence[str] | Sequence[int] | None
"""The outputs of classes, in any form that :func:`read_outputs` reads."""


class Adapted(nn.Module):
    """A network as a model of a dataset whose images or classes have another form.

    Images are resized and cropped, and one affine map gives them the network's range and
    normalisation; all of it has gradients. Energies, gradients, chains and attacks thus are
    functions of jembench's images. The state dictionary only has the network's own names, after
    ``net.``. :func:`adapt` makes it.

    Args:
        net: of the images that it was trained on, (B, c, h, w).
        data: the description of the dataset.
        preparation: the input of the network.
        outputs: each class's place among the logits; None: all logits, in order.
    """

    chains: Chains = "none"
    net: Any
    factor: Tensor
    shift: Tensor

    def __init__(
        self,
        net: nn.Module,
        data: DataSpec,
        preparation: Preparation,
        outputs: Sequence[int] | None,
    ) -> None:
        nn.Module.__init__(self)
        self.net = net
        self.bounds = data.bounds
        self.preparation = preparation
        self.outputs = None if outputs is None else list(outputs)
        factor, shift = preparation.affine(data.bounds)
        self.register_buffer("factor", factor, persistent=False)
        self.register_buffer("shift", shift, persistent=False)

    def prepared(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B c h w"]:
        """Return images as the network was trained on them."""
        x = self.preparation.fit(x, self.bounds)
        if self.preparation.order != (0, 1, 2):
            x = x.expand(-1, 3, -1, -1)[:, list(self.preparation.order)]
        return x * self.factor + self.shift  # grey images get the channels of the factors

    def of_classes(self, logits: Float[Tensor, "B k"]) -> Float[Tensor, "B K"]:
        """Return the logits of the data's classes among the network's."""
        return logits if self.outputs is None else logits[:, self.outputs]


class AdaptedClassifier(Adapted, LogitModel):
    """A network of logits, whose energies follow from these, trained by cross-entropy.

    The network may return an object that has the logits as ``logits``.
    """

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B K"]:
        return self.of_classes(logits_in(self.net(self.prepared(x))))

    def training_loss(self, batch: Batch, negatives: Negatives | None) -> Loss:
        """Return CE(f(x_l), y_l)."""
        return hybrid_loss(self, batch, negatives, Weights(cross_entropy=1))


class AdaptedModel(Adapted):
    """A model with energies of its own; :func:`_class_with` gives it the methods of its network."""

    def __init__(
        self,
        net: nn.Module,
        data: DataSpec,
        preparation: Preparation,
        outputs: Sequence[int] | None,
    ) -> None:
        super().__init__(net, data, preparation, outputs)
        for name in _TRAITS:
            if hasattr(net, name):
                setattr(self, name, getattr(net, name))
        self.energy_follows_from_logits = outputs is None and energy_follows_from_logits(net)
        obstacle = preparation.obstacle(data)
        self.lacks = dict.fromkeys(("log_prob", "samples"), obstacle) if obstacle else {}
        channels, height, width = preparation.shape(data)
        scales = self.factor.double().abs().log().expand(channels, 1, 1)
        self.log_scale = height * width * float(scales.sum())  # log |dz/dx|

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B K"]:
        return self.of_classes(self.net.logits(self.prepared(x)))

    def _labels(self, y: Tensor | None) -> tuple[Tensor, ...]:
        """Return the network's labels of the data's classes; empty without labels."""
        if y is None:
            return ()
        if self.outputs is None:
            return (y,)
        return (y.new_tensor(self.outputs)[y],)


class _Methods(AdaptedModel):
    """The methods of adapted models, of which a class has those that a network has."""

    def logits(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B K"]:
        """Return f(x)."""
        logits: Tensor = self(x)
        return logits

    def energy(
        self, x: Float[Tensor, "B C H W"], y: Int[Tensor, " B"] | None = None
    ) -> Float[Tensor, " B"]:
        """Return the network's E(x, y) if labels are given, else E(x), in nats."""
        return energy_function(self.net)(self.prepared(x), *self._labels(y))

    def chain_energy(
        self, x: Float[Tensor, "B C H W"], y: Int[Tensor, " B"] | None = None
    ) -> Float[Tensor, " B"]:
        """Return the energy that the network's chains follow."""
        return energy_function(self.net, of_chains=True)(self.prepared(x), *self._labels(y))

    def log_prob(
        self, x: Float[Tensor, "B C H W"], y: Int[Tensor, " B"] | None = None
    ) -> Float[Tensor, " B"]:
        """Return log p(x), or log p(x|y): the network's, plus log |dz/dx|, in nats."""
        density: Tensor = self.net.log_prob(self.prepared(x), *self._labels(y))
        return density + self.log_scale

    def sample(
        self, n: int, y: Int[Tensor, " N"] | None = None, *, generator: Generator
    ) -> Float[Tensor, "N C H W"]:
        """Draw images of the network, and map them to the data's range."""
        z: Tensor = self.net.sample(n, *self._labels(y), generator=generator)
        return (z - self.shift) / self.factor


_TRAITS = ("chains", "generates", "differentiable", "joint_pass", "log_prob_is_bound")
"""Attributes of a model that its adapted form has too."""


def adapt(
    net: nn.Module, data: DataSpec, preparation: Preparation, outputs: Sequence[int] | None = None
) -> Adapted:
    """Return a network as a model of a dataset, with the methods of the network.

    A network without the methods of a model becomes an :class:`AdaptedClassifier`. Without an
    inverse of the preparation there is neither ``log_prob`` nor ``sample``.

    Args:
        net: a model, or a network of logits.
        data: the description of the dataset.
        preparation: the input of the network.
        outputs: each class's place among the logits; None: all logits, in order.
    """
    if not capabilities(net):
        return AdaptedClassifier(net, data, preparation, outputs)
    present = {name for name in _METHODS if callable(getattr(net, name, None))}
    if "energy" in capabilities(net):
        present.add("energy")
    if preparation.obstacle(data):
        present -= {"log_prob", "sample"}
    return _class_with(frozenset(present))(net, data, preparation, outputs)


_METHODS = ("logits", "energy", "chain_energy", "log_prob", "sample")


@cache
def _class_with(present: frozenset[str]) -> type[AdaptedModel]:
    """Return a class with these methods only: ``isinstance`` of a protocol examines the class."""
    return type("Adapted", (AdaptedModel,), {name: vars(_Methods)[name] for name in present})


def adapted(
    name: str,
    build: Callable[[DataSpec], Any],
    data: DataSpec,
    preparation: Preparation,
    outputs: Outputs = None,
) -> Adapted:
    """Return a network as a model of a dataset, after a pass of two blank images.

    Args:
        name: of the network, for messages.
        build: returns the network, a model or a network of logits, from the description of the
            images that it was trained on.
        data: the description of the dataset.
        preparation: the input of the network.
        outputs: see :func:`read_outputs`.

    Raises:
        PluginError: if ``build`` returns no module, or the network fails on the images.
        SpecError: if its outputs are not those of the classes.
    """
    listed = read_outputs(outputs)
    names = [label for label in listed if isinstance(label, str)]
    seen = preparation.as_seen(data, names, len(listed) or data.num_classes)
    net = build(seen)
    if not isinstance(net, nn.Module):
        raise PluginError(
            f"The model {name} is of type {type(net).__name__}; it must be a torch.nn.Module."
        )
    to_full_precision(net, name)
    if capabilities(net):
        net = as_model(net, seen, name)
    model = adapt(net, data, preparation)
    if "logits" not in capabilities(model):
        return model

    # the outputs of the classes, by their names or by their order
    shape = shape_of_logits(name, model, data, _SIZE)
    if not isinstance(shape, tuple) or len(shape) != 2 or shape[0] != 2:
        raise PluginError(
            f"The net {name} gives {shape} for two images of {data.name}; it must give logits, one "
            "row an image and one column a class. A network of energies has a method energy(x)."
        )
    number = shape[1]
    if names == list(listed):
        if names and len(names) != number:
            raise SpecError(
                f"outputs has {len(names):,} names, and {name} {number:,} outputs. Give one name "
                "per output, in their order."
            )
        places = outputs_of_classes(name, names, number, data, _NAMED) or ()
    else:
        places = _checked(name, [int(place) for place in listed], number, data)
    if places == tuple(range(number)):
        return model
    return adapt(net, data, preparation, places)


_SIZE = "Give the size that it was trained with, such as size=224."

_NAMED = "Name the outputs, in their order, as the classes are: outputs=FILE.json."


def _checked(name: str, places: Sequence[int], number: int, data: DataSpec) -> tuple[int, ...]:
    """Return the places of the classes among a network's outputs, once all of them exist.

    Raises:
        SpecError: if there is not one for each class, or one is repeated or too large.
    """
    is_whole = len({*places}) == len(places) == data.num_classes
    if not is_whole or min(places) < 0 or max(places) >= number:
        raise SpecError(
            f"outputs is {reprlib.repr(list(places))}; it must be {data.num_classes} different "
            f"numbers below {number:,}: the output of {name} for each class of {data.name}."
        )
    return tuple(places)


def read_outputs(outputs: Outputs) -> Sequence[str] | Sequence[int]:
    """Return the names of a network's outputs, or the output of each class.

    Args:
        outputs: the names in the order of the outputs, or a mapping from places to names, such as
            ``id2label`` of a ``config.json``; or a number per class, its output's place. A text is
            the path of a JSON file of one of these. None or "": nothing is known.

    Raises:
        SpecError: if it is none of these.
    """
    where, content = "outputs", cast(Any, outputs)
    if isinstance(outputs, str | Path):
        where = str(outputs)
        content = _json(path_of(where)) if where else None
    if isinstance(content, Mapping):
        content = content.get("id2label", content)
    if isinstance(content, Mapping):
        content = in_order(content)
    listed = [] if content is None else content
    if isinstance(listed, list | tuple):
        kinds = {type(label) for label in listed}
        if kinds in (set(), {str}, {int}):
            return listed
    raise SpecError(
        f"{where} is not what the outputs of a network are: a list of their names, in their order, "
        'a mapping {"0": "cat", "1": "dog"}, or the number of each class\'s output.'
    )


def _json(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SpecError(f"{file} cannot be read as JSON: {error_text(error)}.") from error
