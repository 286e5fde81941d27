"""The directive `settings`: tables of the environment variables, the limits and the folders, from
the code.
"""

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
from components import inline, table
from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

import jembench
from jembench import files
from jembench.cli.main import COMMANDS, cli
from jembench.limits import Limit

SOURCE = Path(jembench.__file__).parent


class Variable(NamedTuple):
    """An environment variable that a constant of the code names."""

    name: str
    default: str  # of a limit; else empty
    text: str


def variables() -> list[Variable]:
    """Return the variables of constants: `NAME = "JEMBENCH_..."` or a `Limit`, with the docstring
    that follows.
    """
    return sorted(found for path in sorted(SOURCE.rglob("*.py")) for found in _of_module(path))


def _of_module(path: Path) -> Iterator[Variable]:
    body = ast.parse(path.read_text()).body
    for statement, following in itertools.pairwise(body):
        if not isinstance(statement, ast.Assign) or not isinstance(following, ast.Expr):
            continue
        call = statement.value
        constants = [call] if isinstance(call, ast.Constant) else getattr(call, "args", [])
        values = [constant.value for constant in constants if isinstance(constant, ast.Constant)]
        if values and str(values[0]).startswith("JEMBENCH_"):
            assert isinstance(following.value, ast.Constant)
            text = (
                re.sub(r"\s+", " ", str(following.value.value))
                .replace("Environment variable: ", "")
                .rstrip(".")
            )
            default = f"{Limit(*values).default:,} {values[2]}" if len(values) > 1 else ""
            yield Variable(str(values[0]), default, text)


def shared_options() -> dict[str, tuple[str, list[str]]]:
    """Return, of each variable that several commands share, the option and the commands that read
    it.
    """
    found: dict[str, tuple[str, list[str]]] = {}
    for name, command in _commands(cli, COMMANDS):
        for option in command.params:
            if isinstance(option, click.Option) and isinstance(option.envvar, str):
                found.setdefault(option.envvar, (option.opts[0], []))[1].append(name)
    return found


def _commands(
    group: click.Group, names: Any, prefix: str = ""
) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in names:
        command = group.get_command(context, name)
        assert command
        if isinstance(command, click.Group):
            yield from _commands(command, command.list_commands(context), f"{prefix}{name} ")
        else:
            yield prefix + name, command


def folders() -> list[tuple[str, str]]:
    """Return the default path of each folder of the user, and what it holds."""
    functions = (files.cache_folder, files.data_folder)
    paths = [str(function()).replace(str(Path.home()), "~", 1) for function in functions]
    texts = [
        (function.__doc__ or "").partition("\n")[0].removeprefix("Return ").rstrip(".")
        for function in functions
    ]
    store = (
        "the store of fits and cells, in the current folder; ``--store`` or ``JEMBENCH_STORE`` "
        "names another"
    )
    return [("runs", store), *zip(paths, texts, strict=True)]


class Settings(Directive):
    """`{settings} options`, `variables`, `limits` or `folders`."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the table."""
        part = self.arguments[0]
        if part == "options":
            shared = sorted(shared_options().items())
            rows = [
                _row(name, f"``{option}`` of {_listed(names)}") for name, (option, names) in shared
            ]
            return [table(("variable", "sets"), rows, (25, 75))]
        if part == "folders":
            return [table(("folder", "holds"), [_row(*pair) for pair in folders()], (30, 70))]
        if part == "limits":
            rows = [_row(v.name, v.text, v.default) for v in variables() if v.default]
            return [table(("variable", "limits", "default"), rows, (30, 45, 25))]
        assert part == "variables", part
        rows = [
            _row(v.name, v.text)
            for v in variables()
            if not v.default and v.name not in shared_options()
        ]
        return [table(("variable", "meaning"), rows, (25, 75))]


def _listed(names: list[str]) -> str:
    return "every command" if len(names) > 15 else ", ".join(names)


def _row(name: str, *texts: str) -> list[nodes.Element]:
    return [
        nodes.paragraph("", "", nodes.literal("", name)),
        *(nodes.paragraph("", "", *inline(t)) for t in texts),
    ]


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the directive."""
    app.add_directive("settings", Settings)
    return {"parallel_read_safe": True}
