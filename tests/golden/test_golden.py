"""Golden outputs: texts that users see, as they were frozen. ``pytest tests/golden
--update-golden`` writes them anew.

They are reports of ``store.tar.xz``, a store of real results that ``make_store.py`` makes.
"""

import difflib
import itertools
import json
import os
import re
import shlex
import shutil
from pathlib import Path

import click
import pytest

from jembench.catalog import code_identity, discovery
from jembench.cli.main import cli, main

HERE = Path(__file__).parent
EXPECTED = HERE / "expected"
SUITES = {
    "calibration": "--recipe digits-validation",
    "ood": "--models jem --recipe digits",
    "robustness": "",
    "samples": "--recipe digits",
}
"""Suites beside ``hybrid`` that the store has results of, one for each kind of table, and the rows
that have some.
"""


FORMATS = ("table", "github", "junit")


def commands():
    """Return the commands of each file of ``expected``, with terminals' columns."""
    digits = "--recipe digits-validation --metrics accuracy,ece,ood"
    found = {
        "claims": [("report claims.toml --claims", 80)],
        "compare": [(f"compare jem baseline {digits} --resamples 500", 80)],
        "dry-run": [("run hybrid --dry-run --seeds 2", 120)],
    }
    beside = (
        "check classifiers --models jem --recipe digits-validation --metrics accuracy,ece,ood "
        "--tolerance accuracy=1"
    )
    found["check"] = [(f"{beside} --format {format}", 80) for format in FORMATS]
    found |= {
        f"report-{name}": [(f"report {name} {rows}".strip(), 200)] for name, rows in SUITES.items()
    }
    found["report-hybrid"] = [
        (f"report hybrid --format {format}", 80) for format in ("table", "markdown", "latex")
    ]
    return found


COMMANDS = commands()

MASKS = {
    r"─{20,}": "─",  # as long as the widest line
    r"\b[\d.]+ (s|min|h)\b(?=$| here)": "<time>",  # of attacks in a dry run
}
"""Patterns of texts that depend on the machine, on versions or on where modules lie."""


def masked(text, name):
    kinds = ("dry-run", "layout")
    for pattern, replacement in MASKS.items() if name.startswith(kinds) else ():
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    return text


@pytest.fixture(scope="session")
def prepared(tmp_path_factory):
    """Unpack the store as ``runs`` in a folder, beside the experiment with claims, and the results
    of one of its models as ``classifiers``.
    """
    folder = tmp_path_factory.mktemp("golden")
    shutil.copy(HERE / "claims.toml", folder)
    shutil.unpack_archive(HERE / "store.tar.xz", folder / "runs")
    for part in ("cells", "arrays"):
        shutil.copytree(folder / "runs" / part, folder / "classifiers" / part)
    for path in (folder / "classifiers" / "cells").iterdir():
        fit = json.loads(path.read_text())["fit"]
        if (fit["model"], fit["recipe"]) != ("baseline", "digits-validation"):
            path.unlink()
    return folder


@pytest.fixture
def call(prepared, capsys, monkeypatch):
    """Run a command line there: what it printed, as text."""
    for name in [
        name
        for name in os.environ
        if name.startswith("JEMBENCH_") and name != "JEMBENCH_TESTS_FOLDER"
    ]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(prepared)
    monkeypatch.setattr(code_identity, "code", lambda module, of_package=False: "")
    discovery.catalogue.cache_clear()

    def called(line, columns=80):
        monkeypatch.setenv("COLUMNS", str(columns))
        capsys.readouterr()
        code = main(shlex.split(line))
        out, err = capsys.readouterr()
        parts = [f"$ COLUMNS={columns} jembench {line}\n", out, f"--- stderr\n{err}" if err else ""]
        return "".join(parts) + (f"--- exit code {code}\n\n" if code else "\n")

    yield called
    discovery.catalogue.cache_clear()


@pytest.fixture
def golden(request):
    """Compare a text with a file of ``expected``, or write it."""

    def compare(name, text):
        path, text = EXPECTED / f"{name}.txt", masked(text, name)
        if request.config.getoption("--update-golden"):
            path.write_text(text)
        before = path.read_text() if path.exists() else ""
        changed = difflib.unified_diff(
            before.splitlines(), text.splitlines(), "expected", "now", lineterm=""
        )
        if text != before:
            pytest.fail(
                f"{path.name} is not what it was. If that is meant: pytest tests/golden "
                "--update-golden\n"
                + "\n".join(line for line, _ in zip(changed, range(60), strict=False)),
                pytrace=False,
            )

    return compare


@pytest.mark.parametrize("name", COMMANDS)
def test_what_commands_print(name, call, golden):
    golden(name, "".join(call(line, columns) for line, columns in COMMANDS[name]))


def named(command, context, path=()):
    """The words that call a command and each command below it."""
    yield " ".join(path)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            yield from named(command.get_command(context, name), context, (*path, name))


def test_help(call, golden, monkeypatch):
    """Wide and without blank lines; an option that an earlier command describes in the same words
    by its name alone.
    """
    monkeypatch.setitem(cli.context_settings, "max_content_width", 200)
    lines = [f"{words} --help".strip() for words in named(cli, click.Context(cli))]
    told = set()

    def once(option):
        words = " ".join(option[0].split())
        known = words in told
        told.add(words)
        return f"  {option[1]}" if known else option[0]

    text = "".join(call(line, 200) for line in lines)
    text = re.sub(r"^  (-\S+(?: \S+)*).*(?:\n {8,}\S.*)*", once, text, flags=re.MULTILINE)
    text = re.sub(r"^(  -\S+(?: \S+)*)\n(?=  -\S+(?: \S+)*$)", r"\1", text, flags=re.MULTILINE)
    golden("help", re.sub(r"\n{2,}(?!\$)", "\n", text))


def test_the_layout_of_a_store(call, golden, zoo_of_tests, tmp_path, no_pictures):
    tiny = (
        "--models zoo_of_tests:jem --dataset zoo_of_tests:data --recipe "
        f"{zoo_of_tests / 'tiny.toml'}"
    )
    call(f"run hybrid {tiny} --metrics accuracy,energy-gap --store {tmp_path}")
    files = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    text = "".join(
        f"{pattern}\n"
        for pattern in sorted({anonymous(path.relative_to(tmp_path)) for path in files})
    )
    for folder in ("cells", "fits"):
        record = next(path for path in files if folder in path.parts and path.suffix == ".json")
        groups = itertools.groupby(
            sorted(keys(json.loads(record.read_text()))), lambda key: key.partition(".")[0]
        )
        text += f"\n--- the keys of {folder}\n" + "".join(
            f"{' '.join(group)}\n" for _, group in groups
        )
    golden("layout", text)


def anonymous(path):
    return re.sub(r"\b[0-9a-f]{10,16}\b", "<id>", path.as_posix())


def keys(record, path=""):
    for key, value in record.items():
        yield f"{path}{key}"
        if isinstance(value, dict) and key not in ("packages", "recipe", "identity", "values"):
            yield from keys(value, f"{path}{key}.")


def test_no_other_file_is_expected(request):
    names = {f"{name}.txt" for name in [*COMMANDS, "help", "layout"]}
    others = [path for path in EXPECTED.iterdir() if path.name not in names]
    if request.config.getoption("--update-golden"):
        for path in others:
            path.unlink()
    else:
        assert others == []
