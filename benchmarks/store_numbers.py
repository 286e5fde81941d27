"""Print the numbers of a store, one a line, so that two revisions can be compared with ``diff``.

    jembench run hybrid --store new && python benchmarks/store_numbers.py new >new.txt
    diff old.txt new.txt

A line is a value with its interval, the status of a metric without one, or the digest of a fit's
weights, without paths, ids, protocols and times. Values are printed in full: on one machine, equal
lines are equal bit for bit.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file

TIMES = ("iteration-time",)


def fit_name(fit: dict[str, Any]) -> str:
    """Return a fit's model, dataset, recipe and seed in one word."""
    return f"{fit['model']}/{fit['dataset']}/{fit['recipe']}/s{fit['seed']}"


def cell_lines(path: Path) -> Iterator[str]:
    """Return the lines of one cell."""
    cell = json.loads(path.read_text())
    name, outcome = f"{fit_name(cell['fit'])} {cell['metric']}", cell["outcome"]
    if cell["metric"].startswith(TIMES) or not outcome["values"]:
        yield f"{name} {outcome['status']}"
        return
    for label, one in outcome["values"].items():
        yield f"{name} {label} {one['value']!r} [{one['low']!r}, {one['high']!r}] n={one['n']}"


def weights_line(folder: Path) -> str:
    """Return the digest of a fit's weights, without their file's header."""
    fit = json.loads((folder / "fit.json").read_text())["key"]
    digest = hashlib.sha256()
    for name, weights in sorted(load_file(folder / "model.safetensors").items()):
        digest.update(name.encode() + weights.tobytes())
    return f"{fit_name(fit)} weights {digest.hexdigest()}"


def main(store: Path) -> None:
    """Print all lines, sorted."""
    lines = [line for path in (store / "cells").glob("*.json") for line in cell_lines(path)]
    lines += [weights_line(path.parent) for path in (store / "fits").glob("*/model.safetensors")]
    print(*sorted(lines), sep="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
