"""Labels of values in words, for headings and notes, and short names."""

import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from importlib import resources
from typing import Any

from jembench.catalog.spec import Spec


def table_of(file: str) -> dict[str, Any]:
    """Return the content of a TOML file of this package."""
    path = resources.files("jembench.report").joinpath(file)
    return tomllib.loads(path.read_text(encoding="utf-8"))


_WORDS = table_of("headings.toml")
_KNOWN = re.compile(rf"(?<![^@-])({'|'.join(sorted(_WORDS, key=len, reverse=True))})(?![^@-])")
_NETWORK = re.compile(
    r"(is|fid-infinity|fid|kid|precision|recall|density|coverage|memorised|nearest-ratio|ct|authentic)"
    r"-(.+-cnn|dinov2|clip)"
)


def split(label: str) -> tuple[str, str]:
    """Split a label from its feature network: ``fid`` and ``digits-cnn``.

    The network is "" where the label names none.
    """
    parts = _NETWORK.fullmatch(label)
    if parts:
        return (parts[1], parts[2])
    return (label, "")


def in_words(label: str) -> str:
    """Return a label in words.

    ``pgd-linf@8/255`` is "PGD L∞ at 8/255", ``fid-digits-cnn`` is "FID (digits CNN)".
    """
    text, network = split(label)
    words = _KNOWN.sub(lambda word: _WORDS[word[0]], text).replace("-", " ").replace("@", " at ")
    if network:
        return f"{words} ({in_words(network)})"
    return words


def known_as(metric: Spec, label: str = "") -> tuple[str, ...]:
    """Return the texts that name a column.

    The texts are the label (whole, without its feature network, in words) and the metric.

    Args:
        metric: the spec.
        label: of the value; "": not known.
    """
    return *label_names(label or metric.bare), metric


def label_names(label: str) -> tuple[str, ...]:
    """Return a label's names: whole, without its feature network, in words."""
    text, network = split(label)
    return label, text, f"{in_words(text)} {in_words(network)}".strip()


def distinct(names: Mapping[str, str]) -> dict[str, str]:
    """Return the short name of each text.

    Texts with equal names stay unchanged.

    Args:
        names: short names by texts.
    """
    taken = Counter(names.values())
    return {text: name if taken[name] == 1 else text for text, name in names.items()}
