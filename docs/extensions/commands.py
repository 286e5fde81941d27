"""The directive `command`: the help of one command, in which options and specs are code."""

import re
from typing import Any

import click
from docutils import nodes
from sphinx.application import Sphinx
from sphinx_click.ext import NESTED_FULL, ClickDirective

from jembench.cli.main import cli

CODE = re.compile(r"`([^`]+)`|(?<!\S)(--[a-z][\w-]*|\w+:[a-z]\S*?(?=[.,;:)]*(?:\s|$)))")


def _as_code(app: Sphinx, context: Any, lines: list[str]) -> None:
    for place, line in enumerate(lines):
        if line.startswith("| ") and "jembench " in line:  # an example
            lines[place] = f"| ``{line[2:].strip()}``"
        elif ".. option::" not in line and line.count("`") % 2 == 0:
            lines[place] = CODE.sub(lambda found: f"``{found[1] or found[2]}``", line)


class Command(ClickDirective):
    """``.. command:: run``: a section with the help of a command and of the commands below it."""

    def run(self) -> list[nodes.section]:
        """Return the section."""
        self.env = self.state.document.settings.env
        name = self.arguments[0]
        command = cli.get_command(click.Context(cli), name)
        assert command, f"there is no command {name}"
        return list(self._generate_nodes(f"jembench {name}", command, None, NESTED_FULL))


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the directive, and listen to what sphinx-click reads."""
    app.add_directive("command", Command)
    for part in ("description", "options", "arguments", "epilog"):
        app.connect(f"sphinx-click-process-{part}", _as_code)
    return {"parallel_read_safe": True}
