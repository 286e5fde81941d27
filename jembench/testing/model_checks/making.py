"""How a model is made: from its spec and the data alone."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable

from torch import Tensor

from jembench.catalog import registry
from jembench.catalog.spec import Spec, format_value, keyword_parameters
from jembench.errors import SpecError
from jembench.interfaces import DataSpec, Trainable
from jembench.models.capabilities import capabilities
from jembench.testing.checks import CheckFailed, DoesNotApply
from jembench.testing.model_checks.outputs import beyond, problem
from jembench.testing.model_checks.subject import Answers, Subject

OTHER = DataSpec(name="other", shape=(3, 16, 16), num_classes=4, bounds=(0.0, 1.0))
"""Of another size, other classes, colours and bounds than what models are checked on."""


def can_be_made(subject: Subject) -> None:
    """The factory gives a torch.nn.Module for the data that it is called with."""
    try:
        subject.make()
    except CheckFailed:
        raise
    except Exception as error:
        raise CheckFailed(
            f"It cannot be made for {subject.data.name}, {subject.data.shape}: {type(error).__name__}: {error}. "
            "The factory is called with the DataSpec and the options of the spec."
        ) from error


def has_a_capability(subject: Subject) -> None:
    """The model has at least one of logits, energy, log_prob and sample, or is trained with chains."""
    if not capabilities(subject.model):
        raise CheckFailed(
            "Nothing can be measured of it. Give it a method logits(x), energy(x, y=None), log_prob(x, y=None) or "
            "sample(n, y=None, *, generator); jembench.interfaces says what each one is."
        )


def trained_here_or_elsewhere(subject: Subject) -> None:
    """The model has chains and training_loss, or its factory says that it was trained elsewhere."""
    if not isinstance(subject.model, Trainable) and not subject.resolved.pretrained:
        raise CheckFailed(
            "It cannot be trained: it lacks training_loss, or the attribute chains that says which samples this needs. "
            "Add both, or mark the factory of a model that was trained elsewhere: @jembench.plugin.pretrained()."
        )


def options_typed(subject: Subject) -> None:
    """Every option is keyword-only with a type that its default is of: written out in full, the spec means the same."""
    bound = subject.resolved.bound
    _check_signature(subject)
    written = Spec(bound.name, tuple((key, format_value(value)) for key, value in sorted(bound.arguments.items())))
    try:
        again = registry.resolve("models", str(written)).bound.arguments
    except SpecError as error:
        raise CheckFailed(f"{error} That is its default: give it one of the type that it is annotated with.") from error
    for key, value in bound.arguments.items():
        if (type(again[key]), again[key]) != (type(value), value):
            raise CheckFailed(
                f"The option {key} is {value!r}, which written into a spec is read back as {again[key]!r}. Give it a "
                "default of the type that it is annotated with."
            )


def _check_signature(subject: Subject) -> None:
    factory = subject.resolved.factory
    first, *options = inspect.signature(factory).parameters.values()
    for parameter in options:
        if parameter.kind is not parameter.KEYWORD_ONLY:
            raise CheckFailed(
                f"The factory's parameter {parameter.name} is not keyword-only, so no spec can set it. Write "
                f"({first.name}, *, {parameter.name}: int = 8)."
            )
    keyword_parameters(factory)


def shapes_from_data(subject: Subject) -> None:
    """Made for images of another size, with other colours, classes and bounds, the model fits those."""
    subject.check_made()
    if subject.resolved.pretrained:
        raise DoesNotApply("It was trained elsewhere, for images of one shape.")
    other = dataclasses.replace(subject, data=OTHER)
    try:
        model = other.make()
    except SpecError as refusal:
        raise DoesNotApply(f"It refuses {OTHER.shape}: {refusal}") from refusal
    except Exception as error:
        raise CheckFailed(
            f"It cannot be made for {OTHER.shape} and {OTHER.num_classes} classes: {type(error).__name__}: {error}. "
            "Take sizes from data.shape and data.num_classes, or raise SpecError for what it is not made for."
        ) from error
    answers, samples = subject.answers(subject.model), subject.drawn(subject.model)
    try:
        answers_there, samples_there = other.answers(model), other.drawn(model)
    except Exception as error:
        raise CheckFailed(
            f"On {OTHER.shape} and {OTHER.num_classes} classes it fails: {type(error).__name__}: {error}. Take sizes "
            "from data.shape and data.num_classes."
        ) from error
    _check_moved({**answers, **samples}, {**answers_there, **samples_there}, subject.data, problem)
    _check_moved(samples, samples_there, subject.data, beyond)


def _check_moved(
    at_home: Answers, there: Answers, data: DataSpec, trouble_of: Callable[[str, Tensor, DataSpec], str]
) -> None:
    """What is wrong for the other data alone; what is wrong at home too is told elsewhere."""
    for name, answer in there.items():
        trouble = trouble_of(name, answer, OTHER)
        if trouble and not trouble_of(name, at_home[name], data):
            raise CheckFailed(f"Made for {OTHER.shape}, {OTHER.num_classes} classes and other bounds, {trouble}")
