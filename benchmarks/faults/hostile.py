"""Hostile files: bundles, stores, experiments, recipes, weights and images that a stranger made.

    python benchmarks/faults/hostile.py --seed 0

Each file is given to the command that reads its kind. It is right if nothing outside the folder of
the command changed, the stranger's code did not run, no control character was printed, no number of
the store is another one, and the command ended within its limits of time and memory with an exit
code and without a traceback.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from damage import STUDY, Told, numbers, tell
from hostile_files import CASES, CODE

GIB = 2**20  # of the unit of ru_maxrss, KiB
LARGEST = 2 * GIB
"""The most memory, in KiB, that one file may add to this process."""

# --- the rule -------------------------------------------------------------------------------------


def outside(place: Path) -> dict[str, Any]:
    """Return the state of the files that a command must not change."""
    kept = {}
    for path in sorted(place.rglob("*")):
        part = path.relative_to(place).parts[0]
        if part not in ("store", "other") and path.is_file():
            kept[str(path)] = path.stat().st_size, path.stat().st_mtime_ns
    kept["out"] = [path.exists() for path in (Path("/tmp/jembench-out"), place.parent / "out")]
    return kept


def faults(
    told: Told, before: Any, place: Path, expected: dict[str, Any], memory: float
) -> Iterator[str]:
    """Yield what is wrong."""
    if "Traceback" in told.err or "This is a bug" in told.err:
        yield f"traceback: {told.err[-400:]}"
    if told.code not in (0, 1, 2, 3):
        yield f"exit code {told.code}"
    if outside(place) != before or (place / "ran").exists() or Path("ran").exists():
        yield "a file outside changed"
    if "canary" in sys.modules:
        yield "code of the file ran"
    if any(ord(sign) < 32 and sign not in "\n\t\r" for sign in told.out + told.err):
        yield "a control character was printed"
    found = numbers(told) if told.code == 0 or told.out.lstrip().startswith("{") else {}
    if any(value != expected.get(name) for name, value in found.items() if name in expected):
        yield "another number"
    if memory > LARGEST:
        yield f"{memory / GIB:.1f} GiB of memory"


@click.command()
@click.option("--seed", default=0, show_default=True)
@click.option("--only", default="", help="Those whose name has this text.")
def main(seed: int, only: str) -> None:
    """Give hostile files to the commands that read them, and print a table."""
    os.environ["OMP_NUM_THREADS"] = "1"
    warnings.filterwarnings("ignore", "Duplicate name")
    home = Path(tempfile.mkdtemp(prefix="hostile-"))
    counts: Counter[tuple[str, bool]] = Counter()
    try:
        tell(STUDY, home / "whole")
        expected = numbers(tell("report --format json", home / "whole"))
        assert expected, "the study has no numbers"
        pushed = tell(f"push jem {home}/bundle", home / "whole")
        assert not pushed.code, pushed.err
        for number, (name, (command, build)) in enumerate(CASES.items()):
            if only not in name:
                continue
            place = home / f"case-{number}"
            place.mkdir()
            for part, source in (("store", "whole"), ("bundle", "bundle")):
                shutil.copytree(home / source, place / part)
            (place / "precious").write_text("precious")
            (place / "canary.py").write_text(CODE.format(place / "ran"))
            os.chdir(place)
            build(place, random.Random(f"{seed}/{name}"))
            before, rss = outside(place), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            words = command.replace("{}", str(place)).split()
            store = (
                words.pop(words.index("--store") + 1)
                if "--store" in words
                else str(place / "other")
            )
            told = tell(" ".join(word for word in words if word != "--store"), Path(store))
            added = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - rss
            wrong = list(faults(told, before, place, expected, added))
            counts[name.partition(":")[0], not wrong] += 1
            words_said = " ".join((told.err or told.out).split())[-110:]
            click.echo(
                f"{'WRONG' if wrong else 'right'} {told.code} {name}: "
                f"{'; '.join(wrong) or ascii(words_said)}"
            )
            os.chdir(home)
            shutil.rmtree(place)
        click.echo("\n| kind | hostile files | right | wrong |\n|---|---|---|---|")
        for kind in dict.fromkeys(kind for kind, _ in counts):
            right, wrong = counts[kind, True], counts[kind, False]
            click.echo(f"| {kind} | {right + wrong} | {right} | {wrong} |")
    finally:
        os.chdir("/")
        shutil.rmtree(home)


if __name__ == "__main__":
    main()
