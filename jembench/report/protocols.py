"""Comparison of protocols part by part, also with published ones."""

from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import suppress
from fnmatch import fnmatchcase
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from jembench.catalog.spec import Spec
from jembench.errors import SpecError
from jembench.report import headings


def parsed(protocol: str) -> Spec | None:
    """Return a protocol as a spec; None if the protocol is no spec.

    Plugins may have such protocols.
    """
    with suppress(SpecError):
        return Spec(protocol)
    return None


def parts_of(protocol: str) -> dict[str, str]:
    """Return the parts of a protocol; {} if the protocol is no spec."""
    whole = parsed(protocol)
    if whole:
        return dict(whole.options)
    return {}


def without_options(specs: Iterable[str]) -> dict[str, str]:
    """Return the name of each spec; specs that share a name stay whole."""
    return headings.distinct({text: own_name(text) or text.partition(":")[0] for text in specs})


_SOURCES = {"imagefolder": "root", "npz": "file", "hf": "model", "torchvision": "model"}
"""The datasets of many sources, with the option that says the source."""


def own_name(text: str) -> str:
    """Return the name that a dataset of a folder, a file or a library has in results.

    Returns:
        "" for other specs, and where the source is not known.
    """
    spec = parsed(text)
    if spec is None or spec.bare not in _SOURCES:
        return ""
    source = Path(spec.options.get(_SOURCES[spec.bare], ""))
    name = source.stem if spec.bare == "npz" else source.name
    return spec.options.get("name", name)


def peculiarities(protocols: Sequence[str]) -> list[str]:
    """Return the differing arguments of each protocol.

    If one of the protocols is no spec, all appear as a whole.
    """
    parts = list(map(parts_of, protocols))
    differing = []
    for name in sorted(set[str]().union(*parts)):
        if len({own.get(name) for own in parts}) > 1:
            differing.append(name)
    # digests are left out where names tell the protocols apart
    named = [name for name in differing if name not in ("content", "data_content")]
    if len({tuple(map(own.get, named)) for own in parts}) == len({*protocols}):
        differing = named
    if not differing or not all(map(parsed, protocols)):
        return list(protocols)
    texts = []
    for own in parts:
        texts.append(", ".join(f"{name}={own.get(name, 'none')}" for name in differing))
    return texts


def source_in_words(source: str) -> str:
    """Return the source of images in words: ``new chains of 20 steps``."""
    if source == "buffer":
        return "replay buffer"
    if source == "direct":
        return "direct samples"
    chains, steps = parsed(source), parts_of(source).get("steps")
    if chains is None or steps is None:
        return source
    words = f"new chains of {steps} steps"
    if chains.name == "chains":
        return words
    return f"{words} by {chains.name}"


# --- attacks --------------------------------------------------------------------------------------

DEFENCE = ("refine", "smooth", "data_noise", "eot", "grad")
"""The parts of an attack's protocol that make the defence. A part of value 0 is absent."""

RULE = ("sure", "verified")
"""The parts that say how many random answers must be wrong; every defence has them."""


def values_of(name: str, attacks: Iterable[Mapping[str, str]]) -> set[str]:
    """Return the values of a part of some attacks' protocols.

    For averaged chains and gradients, which only refined models have, 0 is left out.
    """
    values = {parts.get(name, "0") for parts in attacks}
    values.discard("0" if name in ("eot", "grad") else "")
    return values


def in_common(protocols: Iterable[str]) -> str:
    """Return the norm, budget and defence that attacks share.

    Returns:
        "" if a protocol is not an attack's.
    """
    attacks = list(map(parts_of, filter(None, protocols)))
    if not all("refine" in parts for parts in attacks):
        return ""
    shared = []
    for name in ("norm", "images", "restarts", "steps", "queries", *DEFENCE):
        values = values_of(name, attacks)
        if len(values) == 1 and values != {"0"}:
            shared.append(part_in_words(name, values.pop()))
    return ", ".join(shared)


# --- published numbers ----------------------------------------------------------------------------

TACIT = frozenset({"content", "data_content", "outliers"})
"""Parts of our protocol ids that no publication states: digests of images, number of outliers."""

_NAMES: Mapping[str, str] = headings.table_of("protocols.toml")


def part_in_words(name: str, value: str) -> str:
    """Return a part of a protocol in words: ``averaged chains 5``."""
    if value.isidentifier():
        value = headings.in_words(value)
    return f"{in_words([name])} {value}"


def in_words(parts: Iterable[str]) -> str:
    """Return the names of parts of a protocol, the dataset first."""
    in_order = sorted(parts, key=lambda part: (part != "data", part))
    return ", ".join(_NAMES.get(part, part.replace("_", " ")) for part in in_order)


class Match(NamedTuple):
    """The parts of a published protocol that differ or are missing."""

    differs: Set[str]
    unstated: Set[str]  # not or incompletely stated by the paper


@lru_cache(maxsize=2**16)
def compare(published: str, ours: str, metric: Spec) -> Match | None:
    """Compare a published protocol with one of ours.

    The published protocol may leave parts unstated. But an option that our metric's spec sets, such
    as ``selection=model``, is no default: unstated, it differs.

    Args:
        published: the stated parts; ``*`` in a value stands for an unstated rest, ``inception-*``.
        ours: the whole protocol.
        metric: spec of our metric.

    Returns:
        None if the metrics differ, or our protocol is no spec.
    """
    theirs, own = Spec(published), parsed(ours)
    if own is None or own.name != theirs.name:
        return None
    stated, parts = theirs.options, own.options
    silent = parts.keys() - stated.keys() - TACIT
    differs = silent & metric.options.keys()
    unstated = silent - differs
    for part, value in stated.items():
        if part not in parts or not _same(value, parts[part]):
            differs.add(part)
        elif "*" in value:
            unstated.add(part)
    return Match(differs, unstated)


def _same(published: str, ours: str) -> bool:
    """Return whether two values agree as texts, as numbers or as specs.

    Our value may have a checksum, or more options.
    """
    if fnmatchcase(ours, published) or published == ours.partition("@")[0]:
        return True
    theirs, own = parsed(published), parsed(ours)
    if theirs is not None and own is not None:
        options = own.options
        agree = all(_same(value, options.get(key, "")) for key, value in theirs.options.items())
        return theirs.name == own.name and agree
    with suppress(ValueError, ZeroDivisionError):
        return Fraction(published) == Fraction(ours)  # a share too: 0.1 is 1000/10000
    return False
