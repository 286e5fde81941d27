"""How a model is made, from its spec and the data alone, and what is kept of it."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import tempfile
from pathlib import Path
from typing import Any

from torch import Tensor

from jembench.catalog import registry
from jembench.catalog.options import keyword_parameters
from jembench.catalog.spec import Spec, format_value
from jembench.errors import SpecError
from jembench.interfaces import DataSpec, Fittable, Trainable
from jembench.models.capabilities import capabilities
from jembench.store import checkpoint
from jembench.testing.checks import CheckFailed, DoesNotApply, explained, only_if, promise, require
from jembench.testing.comparing import different, same
from jembench.testing.models.outputs import out_of_bounds, wrong_shape
from jembench.testing.models.subject import ModelSubject, require_equal

OTHER = DataSpec(name="other", shape=(3, 16, 16), num_classes=4, bounds=(0.0, 1.0))
"""Other size, colours, classes and bounds than the data that models are checked on."""


@promise("models")
def can_be_made(subject: ModelSubject) -> None:
    """The factory gives a torch.nn.Module for the data that it is called with.

    The factory is called with the DataSpec and the options of the spec.
    """
    data = subject.data
    with explained(f"It cannot be made for {data.name}, {data.shape}"):
        subject.build()


@promise("models")
def has_a_capability(subject: ModelSubject) -> None:
    """The model has at least one of logits, energy, log_prob and sample, or is trained with chains.

    Give it a method logits(x), energy(x, y=None), log_prob(x, y=None) or sample(n, y=None, *, generator);
    jembench.interfaces says what each one is.
    """
    require(bool(capabilities(subject.model)), "Nothing can be measured of it.")


@promise("models")
def trained_here_or_elsewhere(subject: ModelSubject) -> None:
    """The model has chains and training_loss, or fit, or its factory says that it was trained elsewhere.

    Add training_loss and the attribute chains, which says which samples it needs, or fit, or mark the factory of a
    model that was trained elsewhere: @jembench.plugin.pretrained().
    """
    trained = isinstance(subject.model, (Trainable, Fittable)) or subject.resolved.is_pretrained
    require(trained, "It cannot be trained: it lacks training_loss or chains.")


@promise("models")
def options_typed(subject: ModelSubject) -> None:
    """Every option is keyword-only with a type that its default is of: written out in full, the spec means the same.

    Give each option a default of the type that it is annotated with.
    """
    bound, factory = subject.resolved.bound, subject.resolved.factory
    first, *options = inspect.signature(factory).parameters.values()
    for parameter in options:
        example = f"Write ({first.name}, *, {parameter.name}: int = 8)."
        found = f"The factory's parameter {parameter.name} is not keyword-only, so no spec can set it. {example}"
        require(parameter.kind is parameter.KEYWORD_ONLY, found)
    keyword_parameters(factory)
    written = Spec(bound.name, tuple((key, format_value(value)) for key, value in sorted(bound.arguments.items())))
    try:
        again = registry.resolve("models", str(written)).bound.arguments
    except SpecError as error:
        raise CheckFailed(f"{error} That is its default.") from error
    for key, value in bound.arguments.items():
        found = f"The option {key} is {value!r}, which written into a spec is read back as {again[key]!r}."
        require((type(again[key]), again[key]) == (type(value), value), found)


@promise("models")
def shapes_from_data(subject: ModelSubject) -> None:
    """Made for images of another size, with other colours, classes and bounds, the model fits those.

    Take sizes from data.shape and data.num_classes, or raise SpecError for what it is not made for.
    """
    outputs = subject.outputs(subject.model)
    only_if(not subject.resolved.is_pretrained, "It was trained elsewhere, for images of one shape.")
    other = ModelSubject(subject.resolved, (OTHER,))
    made_for = f"{OTHER.shape} and {OTHER.num_classes} classes"
    with explained(f"It cannot be made for {made_for}"):
        try:
            model = other.build()
        except SpecError as refusal:
            raise DoesNotApply(f"It refuses {OTHER.shape}: {refusal}") from refusal
    with explained(f"On {made_for} it fails"):
        others = other.outputs(model)
    for name, answer in others.items():
        for fault in (wrong_shape, out_of_bounds):
            found = fault(name, answer, OTHER)
            if found and not fault(name, outputs[name], subject.data):  # otherwise another check reports it
                raise CheckFailed(f"Made for {OTHER.shape}, {OTHER.num_classes} classes and other bounds, {found}")


LOSSES = 3
"""Computed before a model is saved."""


@promise("models")
def saved_and_loaded(subject: ModelSubject) -> None:
    """Its state, saved and loaded into a model of another seed, gives the same answers, samples and losses.

    Something that counts is neither a parameter nor a buffer: register_buffer makes it a part of the state. Hold
    tensors in it alone, each once, with shapes that follow from the spec and the data, unless it has fit.
    """
    model = _used(subject)
    loaded = subject.build(seed=1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        with explained("Its state_dict cannot be written and loaded"):
            checkpoint.write(path, dict(model.state_dict()))
            checkpoint.load_weights(loaded, checkpoint.read(path))
    require_equal(subject.outputs(loaded), subject.outputs(model), "after saving and loading")
    _check_same_loss(subject, model, loaded)


def _check_same_loss(subject: ModelSubject, model: Any, loaded: Any) -> None:
    """The next loss is the same, so that an interrupted training resumes exactly."""
    if not isinstance(model, Trainable):
        return
    alike = _used(dataclasses.replace(subject))
    uninterrupted, as_well, resumed = (_loss(subject, each) for each in (model, alike, loaded))
    only_if(same(uninterrupted, as_well), "Its loss differs each time: see the check loss-by-seed.")
    found = f"After {LOSSES} losses the next is {uninterrupted.tolist()}, and after loading {resumed.tolist()}"
    require(same(uninterrupted, resumed), f"{found}: a training that is interrupted becomes another one.")


def _loss(subject: ModelSubject, model: Any) -> Tensor:
    """The next training loss."""
    return subject.loss(model.train()).total.detach()


@promise("models")
def deep_copy(subject: ModelSubject) -> None:
    """A deep copy gives the same answers, and training it leaves the original as it was.

    Keep no generators, files, locks or tensors with a history on the model, and define no __deepcopy__ that leaves
    something out or hands out what is there.
    """
    model = subject.model
    with explained("It cannot be copied"):
        twin = copy.deepcopy(model)
    require_equal(subject.outputs(twin), subject.outputs(model), "in a deep copy")
    state = {name: value.clone() for name, value in model.state_dict().items()}
    for value in twin.state_dict().values():
        value.fill_(1)
    shared = different(state, model.state_dict())
    found = f"Changing a deep copy changes the original, in {', '.join(shared[:3])}. The two share tensors."
    require(not shared, found)


def _used(subject: ModelSubject) -> Any:
    """The model after some losses, if it is trained here: its state must include what they change."""
    model = subject.shaken.train()
    if isinstance(model, Trainable):
        for _ in range(LOSSES):
            subject.loss(model)
    return subject.shaken.eval()
