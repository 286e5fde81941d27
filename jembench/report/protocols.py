"""Comparison of protocols part by part: among our own results, and of a published number with one
of ours.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import suppress
from fnmatch import fnmatchcase
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from jembench.catalog import spec
from jembench.catalog.spec import Spec
from jembench.errors import SpecError
from jembench.report import headings


def parsed(protocol: str) -> Spec | None:
    """Return a protocol as a spec; None of a plugin whose protocols are no specs."""
    with suppress(SpecError):
        return spec.parse(protocol)
    return None


def parts_of(protocol: str) -> dict[str, str]:
    """Return the parts of a protocol; none of a plugin whose protocols are no specs."""
    found = parsed(protocol)
    return dict(found.arguments) if found else {}


def peculiarities(protocols: Sequence[str]) -> list[str]:
    """Return the arguments of each protocol that differ, or the whole text where protocols are no
    specs.
    """
    specs = [dict(found.arguments) for found in map(parsed, protocols) if found]
    keys = sorted({key for arguments in specs for key in arguments})
    differing = [key for key in keys if len({arguments.get(key) for arguments in specs}) > 1]
    # digests, of what others may name
    named = [key for key in differing if key not in ("content", "data_content")]
    if len({tuple(map(arguments.get, named)) for arguments in specs}) == len({*protocols}):
        differing = named
    if not differing or len(specs) < len(protocols):
        return list(protocols)
    return [
        ", ".join(f"{key}={arguments.get(key, 'none')}" for key in differing) for arguments in specs
    ]


def source_in_words(source: str) -> str:
    """Return the source of generated images in a protocol in words: ``new chains of 20 steps by
    sgld``.
    """
    known, chains = {"buffer": "replay buffer", "direct": "direct samples"}, parsed(source)
    if source in known or chains is None or "steps" not in (options := dict(chains.arguments)):
        return known.get(source, source)
    return f"new chains of {options['steps']} steps" + f" by {chains.name}" * (
        chains.name != "chains"
    )


# --- attacks
# ----------------------------------------------------------------------------------------------------------

DEFENCE = ("refine", "smooth", "data_noise", "eot", "grad")
"""The parts of an attack's protocol that make the defence. At 0, nothing is there."""

RULE = ("sure", "verified")
"""The parts that say how many random answers must be wrong; every defence has them."""


def values_of(name: str, attacks: Iterable[Mapping[str, str]]) -> set[str]:
    """Return the values of a part of some attacks' protocols; of chains and gradients those of
    refined models alone.
    """
    return {parts.get(name, "0") for parts in attacks} - {"0" if name in ("eot", "grad") else ""}


def in_common(protocols: Iterable[str]) -> str:
    """Return the norm, the budget and the defence that attacks have in common; of other metrics
    among them, nothing.
    """
    attacks = [parts_of(protocol) for protocol in protocols if protocol]
    if not all("refine" in parts for parts in attacks):
        return ""
    found = []
    for name in ("norm", "images", "restarts", "steps", "queries", *DEFENCE):
        values = values_of(name, attacks)
        if len(values) == 1 and values != {"0"}:
            found.append(part_in_words(name, values.pop()))
    return ", ".join(found)


# --- published numbers
# ------------------------------------------------------------------------------------------------

TACIT = frozenset({"content", "data_content", "outliers"})
"""Parts of our protocol ids that no publication states: the images themselves, and the number of
the outliers.
"""

_NAMES: Mapping[str, str] = headings.table_of("protocols.toml")


def part_in_words(name: str, value: str) -> str:
    """Return a part of a protocol and its value: ``norm L∞``, ``averaged chains 5``."""
    return f"{in_words([name])} {headings.in_words(value) if value.isidentifier() else value}"


def in_words(parts: Iterable[str]) -> str:
    """Return the names of parts of a protocol in a sentence: the dataset first, then by the keys of
    the others.
    """
    in_order = sorted(parts, key=lambda part: (part != "data", part))
    return ", ".join(_NAMES.get(part, part.replace("_", " ")) for part in in_order)


class Match(NamedTuple):
    """A published protocol beside one of ours: the parts that differ, and those that are
    incompletely stated there.
    """

    differs: Set[str]
    unstated: Set[str]


@lru_cache(maxsize=2**16)
def compare(published: str, ours: str, metric: str) -> Match | None:
    """Compare a published protocol, of which some parts may not be stated, with one of ours.

    An option that the spec of our metric sets, ``selection=model`` for one, is no default that a
    publication may pass over: it differs where it is not stated.

    Args:
        published: what is known of it; ``*`` in a value stands for what is not stated,
            ``inception-*``.
        ours: the whole protocol.
        metric: spec of our metric.

    Returns:
        None if the metric is another, or ours is no spec.
    """
    theirs, own = spec.parse(published), parsed(ours)
    if own is None or own.name != theirs.name:
        return None
    stated, known = dict(theirs.arguments), dict(own.arguments)
    silent = known.keys() - stated.keys() - TACIT
    differs = {
        part for part, value in stated.items() if part not in known or not _same(value, known[part])
    }
    differs |= silent & dict(spec.parse(metric).arguments).keys()
    vague = {part for part, value in stated.items() if "*" in value}
    return Match(differs, (silent | vague) - differs)


def _same(published: str, ours: str) -> bool:
    """Return whether two values agree: as text, as numbers, as specs of which ours says more, or
    but for a checksum.
    """
    if fnmatchcase(ours, published) or published == ours.partition("@")[0]:
        return True
    theirs, own = parsed(published), parsed(ours)
    if theirs is not None and own is not None:
        known = dict(own.arguments)
        return theirs.name == own.name and all(
            _same(value, known.get(key, "")) for key, value in theirs.arguments
        )
    with suppress(ValueError, ZeroDivisionError):
        return Fraction(published) == Fraction(ours)  # a share too: 0.1 is 1000/10000
    return False
