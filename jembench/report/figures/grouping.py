"""Results that belong together."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

T = TypeVar("T")


def grouped(results: Iterable[T], key: Callable[[T], Hashable]) -> list[list[T]]:
    """The results with the same key together, in the order in which they first come."""
    groups: dict[Hashable, list[T]] = {}
    for result in results:
        groups.setdefault(key(result), []).append(result)
    return list(groups.values())
