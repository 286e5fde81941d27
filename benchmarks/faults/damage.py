"""Damaged files of a store, and a check that no command prints another number.

    python benchmarks/faults/damage.py --files 100 --seed 0

A small store with two models and an unfinished training is copied, one of its files is damaged, and
three commands follow: ``report``, ``store verify`` and the ``run`` that made the store. An outcome
is right if each number that a command prints is that of the undamaged store, and if a number that
it leaves out comes with a message or an exit code. The rule compares the JSON of reports, and knows
nothing of how the store checks its files.
"""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import signal
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import click

from jembench.cli.main import main as jembench
from jembench.store import records

SETTINGS = (
    "--dataset digits --limit 128 --set epochs=1 --set log_every=5 --set checkpoint_every=10 "
    "--executor local"
)
STUDY = (
    f"run hybrid --models jem,baseline {SETTINGS} --metrics accuracy,ece,fid:resamples=20 --seeds 0"
)
UNFINISHED = f"run hybrid --models jem {SETTINGS} --metrics accuracy --seeds 1"

LONGEST = 300
"""Seconds after which a command counts as hanging."""


class Told(NamedTuple):
    """The outcome of a command."""

    code: int
    out: str
    err: str


class Hangs(BaseException):
    """A command that does not end."""


def tell(command: str, store: Path) -> Told:
    """Run a command in this process."""

    def hangs(*_: object) -> None:
        raise Hangs

    out, err = io.StringIO(), io.StringIO()
    signal.signal(signal.SIGALRM, hangs)
    signal.alarm(LONGEST)
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = jembench([*command.split(), "--store", str(store)])
    except Hangs:
        code, _ = -1, err.write("Traceback: it hangs")
    except BaseException as error:
        code, _ = -1, err.write(f"Traceback: {error!r}")
    finally:
        signal.alarm(0)
    return Told(code, out.getvalue(), err.getvalue())


def numbers(told: Told) -> dict[str, Any]:
    """Return the numbers in the JSON of a report or a run."""
    if not told.out.lstrip().startswith("{"):
        return {}
    found = {}
    for row in json.loads(told.out)["rows"]:
        if row["status"] == "ok" and not row["source"]:
            name = "/".join(map(str, (row["model"], row["dataset"], row["seeds"], row["label"])))
            found[name] = row["value"], row["low"], row["high"], row["n"]
    return found


# --- damage ---------------------------------------------------------------------------------------


def flip(path: Path, other: Path, rng: random.Random) -> None:
    """Change some bits."""
    content = bytearray(path.read_bytes())
    for _ in range(rng.randint(1, 8)):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def cut(path: Path, other: Path, rng: random.Random) -> None:
    """Cut the end off."""
    os.truncate(path, rng.randrange(path.stat().st_size))


def empty(path: Path, other: Path, rng: random.Random) -> None:
    """Remove the content."""
    path.write_bytes(b"")


def lengthen(path: Path, other: Path, rng: random.Random) -> None:
    """Add bytes at the end."""
    path.write_bytes(path.read_bytes() + rng.randbytes(rng.randint(1, 99)))


def swap(path: Path, other: Path, rng: random.Random) -> None:
    """Exchange two valid files of one kind."""
    content = path.read_bytes()
    path.write_bytes(other.read_bytes())
    other.write_bytes(content)


def folder(path: Path, other: Path, rng: random.Random) -> None:
    """Put a folder in the place of the file."""
    path.unlink()
    path.mkdir()


def link(path: Path, other: Path, rng: random.Random) -> None:
    """Replace the file by a link to nothing or to its like."""
    path.unlink()
    path.symlink_to(rng.choice([path.with_name("nothing"), other.absolute()]))


def fifo(path: Path, other: Path, rng: random.Random) -> None:
    """Put a named pipe in its place."""
    path.unlink()
    os.mkfifo(path)


def remove(path: Path, other: Path, rng: random.Random) -> None:
    """Remove the file."""
    path.unlink()


def version(path: Path, other: Path, rng: random.Random) -> None:
    """Change the version of the file; the digest of a record stays valid."""
    schema = rng.choice([0, 1, 99])
    if path.suffix == ".json":
        records.write(path, {**records.read(path).data, "schema": schema})
    else:
        path.write_bytes(path.read_bytes().replace(b"schema", b"schemb"))


DAMAGES: list[Callable[[Path, Path, random.Random], None]] = [
    *(flip, cut, empty, lengthen, swap, folder, link, fifo, remove, version),
]


def kind_of(path: Path, store: Path) -> str:
    """Return the kind of a file."""
    part, *_ = path.relative_to(store).parts
    name = path.name if part == "fits" else path.suffix
    return f"{part}/{name.rstrip('-0123456789')}"


# --- the rule -------------------------------------------------------------------------------------


def judge(told: Told, expected: dict[str, Any], *, may_lack: bool) -> str:
    """Return the fault in the numbers that a command printed; "" for none.

    ``may_lack``: a cell was removed, which leaves a store that never had this result.
    """
    found = numbers(told)
    if "Traceback" in told.err or "This is a bug" in told.err:
        return f"traceback: {told.err[-300:]}"
    if wrong := [name for name in found if found[name] != expected.get(name)]:
        return f"another number: {wrong[0]} is {found[wrong[0]]}, not {expected.get(wrong[0])}"
    if found.keys() != expected.keys() and not (may_lack or told.code or told.err.strip()):
        return "a number is missing without a word"
    return ""


@click.command()
@click.option("--files", default=100, show_default=True, help="Number of damaged files.")
@click.option("--seed", default=0, show_default=True)
@click.option("--only", type=int, help="The one damage of this number.")
def main(files: int, seed: int, only: int | None) -> None:
    """Damage files of a store one by one, and print a table of outcomes."""
    os.environ["OMP_NUM_THREADS"] = "1"
    place = Path(tempfile.mkdtemp(prefix="damage-"))
    try:
        whole, ended = place / "whole", place / "ended"
        tell(STUDY, whole)
        tell(f"{UNFINISHED} --max-hours 0.0002", whole)
        reported = numbers(tell("report --format json", whole))
        shutil.copytree(whole, ended)
        finished = numbers(tell(f"{UNFINISHED} --format json", ended))
        assert reported, "the study has no numbers"
        assert finished, "the unfinished training has no number"
        kinds = defaultdict(list)
        for path in sorted(whole.rglob("*")):
            if path.is_file():
                kinds[kind_of(path, whole)].append(path.relative_to(whole))
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for number in range(files):
            rng = random.Random(f"{seed}/{number}")
            kind = sorted(kinds)[number % len(kinds)]
            damage = rng.choice(
                [each for each in DAMAGES if each is not swap or len(kinds[kind]) > 1]
            )
            store = place / "damaged"
            shutil.copytree(whole, store, symlinks=True)
            name = rng.choice(kinds[kind])
            other = rng.choice([each for each in kinds[kind] if each != name] or [name])
            if only not in (None, number):
                shutil.rmtree(store)
                continue
            try:
                damage(store / name, store / other, rng)
            except ValueError:  # of an empty file
                shutil.rmtree(store)
                continue
            steps = [("report", "report --format json", reported), ("verify", "store verify", {})]
            steps.append(("run", f"{STUDY} --format json", reported))
            if "-s1" in str(name) or kind.startswith(("works", "fits/checkpoint")):
                steps.append(("train", f"{UNFINISHED} --format json", finished))
            seen = False
            wrong = []
            for step, command, expected in steps:
                told = tell(command, store)
                seen |= bool(told.code) or str(Path(name).name) in told.err + told.out
                may_lack = damage is remove and kind == "cells/.json"
                if fault := judge(told, expected, may_lack=may_lack):
                    wrong.append(f"{step}: {fault}")
            how = "WRONG" if wrong else "seen" if seen else "not needed"
            counts[kind][how] += 1
            click.echo(f"{number:3} {damage.__name__:9} {kind:32} {how} {'; '.join(wrong)}")
            shutil.rmtree(store)
        click.echo(
            "\n| kind of file | damaged | seen, or healed with a message | no number needs it | "
            "wrong |"
        )
        click.echo("|---|---|---|---|---|")
        for kind, count in sorted(counts.items()):
            row = (kind, sum(count.values()), count["seen"], count["not needed"], count["WRONG"])
            click.echo(f"| {' | '.join(map(str, row))} |")
    finally:
        shutil.rmtree(place)


if __name__ == "__main__":
    main()
