"""Names that a shell completes: ``eval "$(_JEMBENCH_COMPLETE=bash_source jembench)"``. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import click
from click.shell_completion import CompletionItem

from jembench.catalog import discovery
from jembench.experiment import attacks, recipe, suite_files


class Spec(click.types.StringParamType):
    """A text in which names are completed.

    Args:
        names: a function that gives the names.
        several: whether the text is a list with commas between the specs.
        file: whether it may also be the path of a file.
    """

    def __init__(self, names: Callable[[], Iterable[str]], *, several: bool = False, file: bool = False) -> None:
        self.names = names
        self.several = several
        self.file = file

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The names that begin with what was typed, or with what follows its last comma."""
        before, comma, last = incomplete.rpartition(",") if self.several else ("", "", incomplete)
        found = [name for name in self.names() if name.startswith(last)]
        files = [CompletionItem(incomplete, type="file")] if self.file and not found else []
        return [*files, *(CompletionItem(f"{before}{comma}{name}") for name in found)]


def _of(kind: Any, *, several: bool = False) -> Spec:
    return Spec(lambda: sorted({one.name for one in discovery.components(kind)}), several=several)


ATTACK = Spec(lambda: attacks.ATTACKS)
DATASET, DATASETS = _of("datasets"), _of("datasets", several=True)
EXECUTOR = _of("executors")
FORMAT = _of("formats")
IMPORTER = _of("importers")
METRICS = _of("metrics", several=True)
MODEL, MODELS = _of("models"), _of("models", several=True)
RECIPE = Spec(recipe.names, file=True)
SUITE = Spec(suite_files.names, file=True)
