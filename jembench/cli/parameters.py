"""The types of options and arguments: their texts and completions.

``eval "$(_JEMBENCH_COMPLETE=bash_source jembench)"`` turns completion on. Imports no torch.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import click
from click.shell_completion import CompletionItem

from jembench.catalog import discovery, registry
from jembench.catalog.discovery import Kind
from jembench.catalog.spec import split_list
from jembench.catalog.validation import check_value, read_text
from jembench.errors import SpecError
from jembench.experiment import attacks
from jembench.experiment import recipe as recipes
from jembench.experiment import suite as suites


@dataclass(eq=False)
class Text(click.types.StringParamType):
    """A value given as text.

    Attributes:
        metavar: the value's name in help texts.
        names: the names to complete: a kind of components, or a function that returns names.
        read: a function from the text to the value.
        several: True if the text is a list with commas.
        file: True if the text may also be the path of a file.
    """

    metavar: str
    names: Kind | Callable[[], Iterable[str]] = tuple
    read: Callable[[str], Any] = str
    several: bool = False
    file: bool = False

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read a text; a value from an experiment's file is read already."""
        if self.several:
            return split_list(value) if isinstance(value, str) else list(value)
        return self.read(value) if isinstance(value, str) else value

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Return the name of the value in help texts."""
        return self.metavar

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return names that complete the text, or its part after a comma."""
        before, comma, last = "", "", incomplete
        if self.several:
            before, comma, last = incomplete.rpartition(",")
        if callable(self.names):
            names = self.names()
        else:
            names = sorted({component.name for component in discovery.components(self.names)})
        names = [name for name in names if name.startswith(last)]
        if self.file and not names:
            return [CompletionItem(incomplete, type="file")]
        return [CompletionItem(f"{before}{comma}{name}") for name in names]


def _known_format(text: str) -> str:
    registry.resolve("formats", text)  # refused before anything is computed
    return text


def pair(option: str, text: str, *, last: bool = False) -> tuple[str, str]:
    """Split a text at the first ``=``; at the last one with ``last``.

    Raises:
        SpecError: if a side is empty.
    """
    first, _, second = text.rpartition("=") if last else text.partition("=")
    first, second = first.strip(), second.strip()
    if not first or not second:
        raise SpecError(f"{option} is {text!r}; it must be two parts with = between them.")
    return first, second


class _Count(click.IntRange):
    """A whole number, N in help texts."""

    def __init__(self, hint: Any) -> None:
        super().__init__(min=get_args(hint)[1].least)
        self.hint = hint

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read a number, whose range is that of files and of Python."""
        number = super().convert(value, param, ctx)
        name = param.opts[0] if param else "The number"
        return check_value(number, self.hint, name)

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return "N"


PATH = click.Path(path_type=Path)
COUNT, SEED = _Count(recipes.AtLeast1), _Count(recipes.Seed)
HOURS = Text("H", read=lambda text: read_text(text, recipes.Positive, "--max-hours"))
JOBS = Text("N|auto")
LIST = SEEDS = Text("LIST", several=True)

ATTACK = Text("ATTACK", lambda: attacks.ATTACKS)
DATASET, DATASETS = Text("SPEC", "datasets"), Text("SPECS", "datasets", several=True)
EXECUTOR = Text("SPEC", "executors")
FORMAT = Text("FORMAT", "formats", read=_known_format)
IMPORTER = Text("IMPORTER", "importers")
METRICS = Text("SPECS", "metrics", several=True)
MODEL, MODELS = Text("SPEC", "models"), Text("SPECS", "models", several=True)
RECIPE = Text("NAME", recipes.names, file=True)
RECIPES = Text("RECIPES", recipes.names, several=True)
SETTING, SUBJECT = Text("KEY=VALUE"), Text("PACKAGE...")
SUITE = Text("SUITE", suites.names, file=True)
TABLES = Text("NAMES", several=True)
TRACKERS = Text("SPECS", "trackers", several=True)
