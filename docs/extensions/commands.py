"""In the help of commands, options, specs and what stands between backticks are code."""

import re
from typing import Any

from sphinx.application import Sphinx

CODE = re.compile(r"`([^`]+)`|(?<!\S)(--[a-z][\w-]*|\w+:[a-z]\S*?(?=[.,;:)]*(?:\s|$)))")


def _as_code(app: Sphinx, context: Any, lines: list[str]) -> None:
    for place, line in enumerate(lines):
        if line.startswith("| ") and "jembench " in line:  # an example
            lines[place] = f"| ``{line[2:].strip()}``"
        elif ".. option::" not in line and line.count("`") % 2 == 0:
            lines[place] = CODE.sub(lambda found: f"``{found[1] or found[2]}``", line)


def setup(app: Sphinx) -> dict[str, Any]:
    """Listen to what sphinx-click reads."""
    for part in ("description", "options", "arguments", "epilog"):
        app.connect(f"sphinx-click-process-{part}", _as_code)
    return {"parallel_read_safe": True}
