"""Protocols part by part: how those of ours differ, and whether a published number means the same as one of ours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from jembench.catalog import spec
from jembench.catalog.spec import Spec
from jembench.errors import SpecError


def parsed(protocol: str) -> Spec | None:
    """A protocol as a spec; None of a plugin that writes its protocols as it likes."""
    try:
        return spec.parse(protocol)
    except SpecError:
        return None


def peculiarities(protocols: Sequence[str]) -> list[str]:
    """What is peculiar to each protocol: the arguments that differ, or the whole text where they are no specs."""
    specs = [dict(found.arguments) for found in map(parsed, protocols) if found]
    keys = sorted({key for arguments in specs for key in arguments})
    differing = [key for key in keys if len({arguments.get(key) for arguments in specs}) > 1]
    if not differing or len(specs) < len(protocols):
        return list(protocols)
    return [", ".join(f"{key}={arguments.get(key, 'none')}" for key in differing) for arguments in specs]


# --- published numbers ------------------------------------------------------------------------------------------------

TACIT = frozenset({"content", "data_content", "outliers"})
"""Parts of our protocol ids that a published number may leave out and still stand beside ours.

The outliers themselves and their number, which are never the same images but of the same kind; the content of the files
of a data set. All else must be stated, and be the same.
"""


class Difference(NamedTuple):
    """A part of the protocol that differs."""

    part: str
    published: str | None  # None: not stated there
    ours: str | None  # None: we have no such thing


def in_words(differences: Iterable[Difference]) -> list[str]:
    """What is different between numbers in one column and ours, each part once: ``dataset CIFAR-10, ours digits``."""
    stated: dict[tuple[str, str | None], dict[str, None]] = {}
    silent: dict[str, None] = {}
    for part, published, ours in differences:
        if published is None:
            silent[named(part)] = None
        else:
            stated.setdefault((named(part), ours), {})[published] = None
    of_some = " or not stated"
    words = [
        f"{part} {_or(list(published))}{of_some * (part in silent)}, ours {_plain(ours)}"
        for (part, ours), published in stated.items()
    ]
    never = [part for part in silent if part not in {part for part, _ in stated}]
    return words + ([f"not stated there: {', '.join(never)}"] if never else [])


def named(part: str) -> str:
    """What a part of a protocol is called in a sentence."""
    return _NAMES.get(part, part.replace("_", " "))


_NAMES = {
    "content": "the outliers themselves",
    "data": "dataset",
    "data_content": "the images themselves",
    "data_noise": "noise on test images",
    "outliers": "their number",
}


def _or(values: list[str]) -> str:
    shown = [value.partition("@")[0] for value in values]
    return " or ".join(shown) if len(shown) < 4 else f"from {shown[0]} to {shown[-1]}"


def _plain(ours: str | None) -> str:
    return "none" if ours is None else ours.partition("@")[0]  # a checksum tells a reader nothing


class Match(NamedTuple):
    """Two protocols of one metric side by side."""

    differences: tuple[Difference, ...]
    tacit: tuple[str, ...]  # parts of ours that are not stated there, and need not be


@lru_cache(maxsize=2**16)
def compare(published: str, ours: str) -> Match | None:
    """A published protocol, of which a part is stated, against one of ours; None if the metric is another."""
    theirs, own = spec.parse(published), parsed(ours)
    if own is None or own.name != theirs.name:
        return None
    stated, known = dict(theirs.arguments), dict(own.arguments)
    differences = [
        Difference(part, stated.get(part), known.get(part))
        for part in sorted(stated.keys() | known.keys(), key=lambda part: (part != "data", part))
        if not (part in stated and part in known and _same(stated[part], known[part]))
        and not (part in TACIT and part not in stated)
    ]
    return Match(tuple(_telling(differences)), tuple(sorted(known.keys() & TACIT - stated.keys())))


def _same(published: str, ours: str) -> bool:
    """Whether two values agree: as text, as numbers, as specs of which ours says more, or but for our checksum."""
    if published in (ours, ours.partition("@")[0]):
        return True
    theirs, own = parsed(published), parsed(ours)
    if theirs is not None and own is not None:
        known = dict(own.arguments)
        return theirs.name == own.name and all(_same(value, known.get(key, "")) for key, value in theirs.arguments)
    try:
        return float(published) == float(ours)
    except ValueError:
        return False


def _telling(differences: Sequence[Difference]) -> list[Difference]:
    """Those worth saying: not how many images there are of other data, nor details of what ours has not at all."""
    on_other_data = any(difference.part == "data" for difference in differences)
    left = [difference for difference in differences if not (on_other_data and difference.part == "images")]
    return [difference for difference in left if difference.ours is not None] or left
