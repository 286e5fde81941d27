"""A dataset without its images, for commands that need to know its shape alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jembench.registry import Resolved

if TYPE_CHECKING:
    from jembench.interfaces import Dataset


def unread(dataset: Resolved) -> Dataset:
    """The dataset without its images: one that may be downloaded does not look for its files before it is read."""
    arguments = dict(dataset.bound.arguments)
    if "download" in arguments:
        arguments["download"] = True
    described: Dataset = dataset.factory(**arguments)
    return described
