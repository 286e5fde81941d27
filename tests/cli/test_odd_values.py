"""No value of an option, an argument or an environment variable is reported as a bug: the whole
command tree is tried.

Nothing is trained. Every path is relative to an empty folder.
"""

import itertools
import os
from pathlib import Path

import click
import pytest

from jembench.cli import doctor
from jembench.cli.main import cli
from jembench.errors import OutOfTime
from jembench.report.page.server import PageServer
from jembench.running import estimate, fits

VALUES = {
    "empty": "",
    "nan": "nan",
    "infinite": "inf",
    "negative": "-1",
    "zero": "0",
    "long number": "9" * 5_000,
    "long word": "x" * 10_000,
    "null byte": "a\0b",
    "two lines": "a\nb",
    "lone surrogate": "a\udcffb",
    "commas": ",,",
    "colons": "a:b:c",
    "option of nothing": ":x=1",
    "brackets": "a[b",
    "letters of all kinds": "é漢\u202e",
    "folder": "folder",
    "fifo": "fifo",
    "loop": "loop",
    "nowhere": "no/such/file",
}

MODEL = "zoo_of_tests:jem"

BASES = {  # what a command is given besides, so that the odd value is all that is wrong
    ("run",): ["--models", MODEL, "--metrics", "accuracy", "--dry-run", "--", "hybrid"],
    ("attack",): ["--models", MODEL, "--dry-run", "--", "pgd"],
    ("train",): ["--", MODEL],
    ("estimate",): ["--against", "tiny.toml", "--", MODEL],
    ("sample",): ["--", MODEL],
    ("import",): ["--", "weights", "weights.pt"],
    ("compare",): ["--", "jem", "baseline"],
    ("check",): ["--", "folder"],
    ("list",): ["--", "suites"],
    ("view",): ["--no-browser", "--"],
    ("plugin", "new"): ["--", "model", "mine"],
    ("plugin", "check"): ["--", "nothing.py"],
}


def commands(command=cli, path=()):
    """Every command of the tree, by its path."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    for name in command.list_commands(click.Context(command)):
        yield from commands(command.get_command(click.Context(command), name), (*path, name))


COMMANDS = dict(commands())


@pytest.fixture
def call(jembench, zoo_of_tests, monkeypatch):
    """Call a command, none of which trains; its exit code, and a message if it looks like a failure
    of ours.
    """

    def train(*arguments, **options):
        raise OutOfTime("The time is up.")

    monkeypatch.setattr(fits, "train", train)
    monkeypatch.setattr(
        estimate, "estimate", lambda *_, **__: estimate.TrainingCost("", "", 1, 1, 1, 1)
    )
    # else it serves until it is stopped
    monkeypatch.setattr(PageServer, "serve_forever", lambda self: None)
    monkeypatch.setenv("JEMBENCH_DATASET", "zoo_of_tests:data")
    monkeypatch.setenv("JEMBENCH_RECIPE", str(zoo_of_tests / "tiny.toml"))

    monkeypatch.setattr(doctor, "NEEDED", {})  # which take seconds to import
    monkeypatch.setattr(doctor, "_devices", list)
    os.mkfifo("fifo")
    Path("loop").symlink_to("loop")
    Path("folder").mkdir()

    def trouble(*arguments):
        done = jembench(*arguments)
        errors = [line for line in done.err.splitlines() if line.startswith("Error: ")]
        fine = (
            done.code
            in (0, 2, 3, int(arguments[:2] == ("store", "site") or arguments[0] == "doctor"))
            and "This is a bug" not in done.err
            and "Traceback" not in done.err
        )
        told = done.code != 2 or (errors and done.err.endswith(f"{errors[-1]}\n"))
        return "" if fine and told else f"exit code {done.code}: {done.err[-300:]!r}"

    return trouble


def places():
    """Every parameter that takes a value, with the command that has it and the command line but for
    the value.
    """
    for path, command in COMMANDS.items():
        base = BASES.get(path, ["--"])
        end = base.index("--")
        arguments = iter(range(end + 1, len(base)))
        for parameter in command.params:
            place = next(arguments, len(base)) if isinstance(parameter, click.Argument) else None
            if getattr(parameter, "is_flag", False) or isinstance(parameter.type, click.Choice):
                continue
            before, after = (
                (base[:end], base[end:]) if place is None else (base[:place], base[place + 1 :])
            )
            yield (
                path,
                parameter,
                ([*path, *before, *([parameter.opts[0]] if place is None else [])], after),
            )


def odd():
    """Every odd value of every parameter, by command; commands that share an option have its values
    by turns.
    """
    named, lines = {}, {path: {} for path in COMMANDS}
    for path, parameter, line in places():
        described = getattr(parameter, "help", None) or path  # an argument has no help
        named.setdefault((parameter.opts[0], described), []).append((path, line))
    for (option, *_), having in named.items():
        for (name, value), (path, (before, after)) in zip(
            VALUES.items(), itertools.cycle(having), strict=False
        ):
            lines[path][f"{option} ({name})"] = [*before, value, *after]
    return lines


ODD = odd()


@pytest.mark.filterwarnings("default::jembench.errors.Fallback")  # it is a note to the user
@pytest.mark.parametrize("path", [path for path in ODD if ODD[path]], ids=" ".join)
def test_an_odd_value_is_refused_in_a_sentence(path, call):
    troubles = {name: call(*line) for name, line in ODD[path].items()}
    assert not {name: trouble for name, trouble in troubles.items() if trouble}


VARIABLES = {
    **{
        f"JEMBENCH_{name}": ["", " ", "nan", "-1", "1e400", "9" * 5_000, "a\nb", ",", "="]
        for name in (
            "STORE",
            "DEVICE",
            "RECIPE",
            "SET",
            "PLUGIN",
            "RANK",
            "RUN_SEEDS",
            "RUN_LIMIT",
            "RUN_FORMAT",
            "RUN_MAX_HOURS",
            "RUN_EXECUTOR",
            "MAX_GIB",
            "MAX_TENSORS",
            "DEBUG",
            "TRUST",
        )
    },
    **{
        name: ["", "x", "-1", "9" * 5_000]
        for name in (
            "RANK",
            "WORLD_SIZE",
            "LOCAL_RANK",
            "SLURM_STEP_NUM_TASKS",
            "SLURM_PROCID",
            "SLURM_NTASKS_PER_NODE",
        )
    },
    "JEMBENCH_DATASET": ["", " ", "nan", "a\nb", ",", "="],
    "COLUMNS": ["0", "-1", "x", ""],
    "XDG_CACHE_HOME": ["fifo", "loop", ""],
    "TMPDIR": ["no/such/folder"],
    "HOME": ["", "no/such/folder"],
    "OMP_NUM_THREADS": ["0", "x"],
}


@pytest.mark.filterwarnings("default::jembench.errors.Fallback")
def test_an_odd_environment_variable_is_refused_in_a_sentence(call, monkeypatch):
    troubles = {}
    for name, values in VARIABLES.items():
        for value in values:
            with monkeypatch.context() as patch:
                patch.setenv(name, value)
                troubles[name, value[:20]] = call("run", *BASES["run",])
    assert not {name: trouble for name, trouble in troubles.items() if trouble}
