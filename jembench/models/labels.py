"""A pretrained network's outputs for the classes of a dataset, by name."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from jembench.errors import Remark, SpecError
from jembench.interfaces import DataSpec

_NUMBERED = re.compile(r"(label|class)?[\W_]*\d+", re.IGNORECASE)
"""Names that libraries make up where none were given: LABEL_0."""

_WORDNET = re.compile(r"n\d{8}")


def outputs_of_classes(
    name: str, names: Sequence[str], number: int, data: DataSpec, remedy: str = ""
) -> tuple[int, ...] | None:
    """Return each class's output index; None: a new last layer is needed.

    Args:
        name: of the network, for errors.
        names: the names of the outputs; empty: unknown.
        number: the number of outputs.
        data: the dataset.
        remedy: where outputs may be lacking; "": the last layer may be a new one.

    Raises:
        SpecError: if there are as many outputs as classes, and their names agree only in part or do
            not tell classes apart; or if outputs are lacking, and there is a remedy.
    """
    classes = data.class_names
    made_up = all(map(_NUMBERED.fullmatch, names)) and not set(names) >= set(classes)
    places = _find(() if made_up else names, classes)
    outputs_of = list(zip(classes, places, strict=True))
    unclear = [label for label, outputs in outputs_of if len(outputs) != 1]
    chosen = [outputs[0] for outputs in places if outputs]
    if classes and not unclear and len({*chosen}) == len(classes):
        if chosen != list(range(number)):
            pairs = [f"{label} ({place})" for label, place in zip(classes, chosen, strict=True)]
            _remark(f"{name} has {number:,} outputs, taken by name: {_some(pairs)}.")
        return tuple(chosen)
    needed = number == data.num_classes or remedy
    if names and not made_up and needed and _are_unknown_ids(names, classes):
        raise SpecError(
            f"{data.name} names its classes by WordNet ids ({_some(classes)}), and {name} its "
            f"outputs in words ({_some(names)}). timm knows which belong together: pip install "
            "timm."
        )
    if number == data.num_classes and chosen:
        raise SpecError(
            f"{name} has the outputs {_some(names)}, and {data.name} the classes "
            f"{_some(classes)}. Not told apart by name: {_some(unclear or classes)}. So the order "
            "of the outputs is not known. Name the folders of the classes as the network does "
            "(id2label in config.json)."
        )
    if number == data.num_classes:
        if classes and classes != tuple(map(str, range(number))):
            _remark(
                f"{name} does not name its outputs, which are taken for the classes as they are "
                f"sorted: {_some(classes)}."
            )
        return tuple(range(number))
    named = f", of which {len(chosen)} are named as outputs are" if chosen else ""
    numbers = f"{name} has {number:,} outputs, and {data.name} {data.num_classes} classes{named}"
    if remedy:
        raise SpecError(f"{numbers}. {remedy}")
    _remark(f"{numbers}: its last layer is drawn at random.")
    return None


@contextmanager
def named_elsewhere() -> Iterator[None]:
    """Leave out the remark on outputs without names, which a file names."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"\S* does not name its outputs", Remark)
        yield


def in_order(names: Mapping[Any, Any]) -> list[Any]:
    """Return names by their places 0, 1, ..., which may be texts; None where one is missing."""
    texts = {str(place): name for place, name in names.items()}
    return [texts.get(str(place)) for place in range(len(texts))]


def _find(names: Sequence[str], classes: Sequence[str]) -> list[Sequence[int]]:
    """Return the outputs with the name of each class."""
    wordnet = _wordnet([*names, *classes])
    if _is_of_imagenet(names, wordnet):
        names = [*wordnet]
    described = [wordnet.get(name, name) for name in names]
    places = [_places(names, str), _places(described, folded), _places(described, _first)]
    outputs: list[Sequence[int]] = []
    for label in classes:
        text = wordnet.get(label, label)
        # the stricter rule first
        keys = (label, folded(text), folded(text))
        matches = [of_keys.get(key, ()) for of_keys, key in zip(places, keys, strict=True)]
        matches.append(places[-1].get(_first(text), ()))
        outputs.append(next(filter(None, matches), ()))
    return outputs


def _places(names: Sequence[str], key: Callable[[str], str]) -> Mapping[str, Sequence[int]]:
    """Return the places of names by their keys."""
    places: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        places.setdefault(key(name), []).append(place)
    return places


def _wordnet(names: Sequence[str]) -> Mapping[str, str]:
    """Return the descriptions of ImageNet's WordNet ids.

    There are none if no name is such an id, or timm is not installed.
    """
    if not any(map(_WORDNET.fullmatch, names)):
        return {}
    try:
        info = import_module("timm.data").ImageNetInfo()
    except ImportError:
        return {}
    labels = info.label_names()
    return dict(zip(labels, info.label_descriptions(), strict=True))


def _are_unknown_ids(names: Sequence[str], classes: Sequence[str]) -> bool:
    """Return whether classes are WordNet ids that nothing translates into the names' words."""
    are_ids = bool(classes) and all(map(_WORDNET.fullmatch, classes))
    return are_ids and not any(map(_WORDNET.fullmatch, names)) and not _wordnet(classes)


def _is_of_imagenet(names: Sequence[str], wordnet: Mapping[str, str]) -> bool:
    """Return whether at least 99 % of names are ImageNet's, in order."""
    if not wordnet or len(names) != len(wordnet):
        return False
    first_names = map(_first, names)
    alike = sum(map(str.__eq__, first_names, map(_first, wordnet.values())))
    return alike >= 0.99 * len(names)


def _first(name: str) -> str:
    return folded(name.partition(",")[0])


def folded(name: str) -> str:
    """Return a name's words in lower case, without punctuation."""
    return re.sub(r"[\W_]+", " ", name).strip().casefold()


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _remark(text: str) -> None:
    warnings.warn(text, Remark, stacklevel=3)
