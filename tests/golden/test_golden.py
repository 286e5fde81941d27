"""Golden outputs: all that users see, as it was frozen. ``pytest tests/golden --update-golden`` writes it anew.

``store.zip`` is a store that release 0.1 wrote, of real results. Weights and most arrays were left out of it, and its
ids are those of installed plugins (an editable installation adds its code to them).
"""

import difflib
import json
import os
import re
import shlex
import zipfile
from pathlib import Path

import click
import pytest
from matplotlib.figure import Figure

from jembench.catalog import code_identity, discovery
from jembench.cli.main import cli, main
from jembench.experiment import suite_files as suite

HERE = Path(__file__).parent
EXPECTED = HERE / "expected"
SUITES = suite.names()
WIDE = ("hybrid", "labels", "robustness")
"""Suites whose tables are shown in three widths; of the others, which repeat them, one has to do."""

CHANGED = ("ablations", "divergence", "samplers")
"""Suites of variants: some of theirs in the store are of former releases."""

KINDS = [
    *("models", "samplers", "metrics", "datasets", "ood_sets", "features"),
    *("suites", "importers", "executors", "recipes", "references"),
]
ERRORS = """
    run nosuch
    run hybrid --models nosuch
    run hybrid --models jem:nosuch=1
    run hybrid --models jem:dropout=much
    run hybrid --models nosuch_module:build
    run hybrid --metrics nosuch
    run hybrid --metrics ece:bins=0
    run hybrid --dataset nosuch
    run hybrid --seeds one
    run hybrid --recipe nosuch
    run hybrid --set nosuch=1
    run hybrid --set epochs=none
    run hybrid --device nosuch
    run hybrid --executor nosuch
    run hybrid --limit 0
    run hybrid --nosuch
    run hybrid --dataset cifar10 --store empty
    attack nosuch
    attack pgd --eps 8
    attack pgd --eps 0/255,x
    attack pgd --norm l3
    report nosuch
    report --store nosuch
    report --claims hybrid
    report hybrid --reference nosuch
    report hybrid --format nosuch
    report --store file
    report --store damaged
    compare jem nosuch
    compare jem baseline --metrics nosuch
    compare jem baseline --seeds 7
    figures --format gif
    figures --metrics nosuch
    figures --width 1km
    list nosuch
    sample nosuch
    import jem nosuch.pt
    plugin check nosuch
    store verify --store nosuch
"""


def commands():
    """The command lines of each file of ``expected``, each with the columns of its terminal."""
    found = {
        "list": [(f"list {kind}", 120) for kind in KINDS] + [("list", 300), ("list --format json", 80)],
        "list-json": [(f"list {kind} --format json", 80) for kind in ("models", "suites")],
        "doctor": [("doctor", 2000), ("doctor --format json", 80), ("plugin list", 300)],
        "report-all": [
            ("report --columns ece,fpr95-in --format latex:interval=pm", 80),
            ("report --limit 20", 80),
        ],
        "report-claims": [("report --claims", 80)],
        "compare": [
            ("compare jem baseline --recipe digits-validation --resamples 500 --metrics accuracy,ece,ood", 80),
            ("compare jem jem --recipe digits-validation --recipe-b digits --metrics accuracy,ece --seeds 2", 120),
            *(
                (f"compare jem baseline --recipe digits-validation --metrics accuracy --format {format}", 80)
                for format in ("markdown", "latex", "csv", "json")
            ),
        ],
        "dry-run": [(f"run {name} --dry-run --seeds 2 --store {store}", 300) for name in SUITES for store in STORES],
        "dry-run-json": [("run hybrid --dry-run --seeds 2,3 --format json", 80)],
        "verify": [("store verify", 120)],
        "errors": [(line.strip(), 80) for line in ERRORS.strip().splitlines()],
    }
    for name in SUITES:
        shown = f"report {name} --recipe all" if name in CHANGED else f"report {name}"
        found[f"report-{name}"] = [(shown, width) for width in ((60, 80, 120) if name in WIDE else (80,))]
        if name != "paper":
            found[f"report-{name}"] += [(f"{shown} --format markdown", 80)]
        if name in ("hybrid", "labels"):
            found[f"report-{name}"] += [(f"{shown} --format latex --width {width}", 80) for width in ("column", "page")]
    for name, format in (("hybrid", "csv"), ("hybrid", "json")):
        found[f"report-{name}"] += [(f"report {name} --format {format}", 80)]
    return found


STORES = ("empty", "runs")
COMMANDS = commands()

MASKS = {
    r"(jembench[\w-]*)( +)\d+\.\d+\.\d+": r"\1\2<version>",
    r'("version": )"[^"]*"': r'\1"<version>"',
    r"(?<= )jembench[\w.]*:\w+( ?) *": r"<target>\1",
    r"(entry point) +(?=\S)": r"\1 ",  # the heading of them, as wide as the widest
    r'("(?:module|attribute|target)": )"[^"]*"': r'\1"<target>"',
    r"─{20,}": "─",  # as long as the widest line
    r"(Python|torch|torchvision|torch-fidelity|scikit-learn) \d[\w.+]*": r"\1 <version>",
    r"\d+ cores, \d+ threads, \w+": "<cores>",
    r"\S*/jembench-tests-\w+": "<home>",
    r"[\d.]+ GiB free": "<space> free",
    r"\b[\d.]+ (s|min|h)\b(?=$| here)": "<time>",  # of attacks in a dry run
    r'("seconds": )[\d.e-]+': r"\1<time>",
}
"""What depends on the machine, on versions, or on where our modules lie."""


def masked(text, name):
    kinds = ("list", "doctor", "dry-run", "errors", "layout")
    for pattern, replacement in MASKS.items() if name.startswith(kinds) else ():
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    return text


# --- the commands -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def prepared(tmp_path_factory):
    """A folder with the store as ``runs``, a copy with a damaged cell, and a file."""
    folder = tmp_path_factory.mktemp("golden")
    with zipfile.ZipFile(HERE / "store.zip") as store:
        store.extractall(folder / "runs")
    damaged = folder / "damaged" / "cells"
    damaged.mkdir(parents=True)
    cell = next((folder / "runs" / "cells").glob("accuracy-jem-digits-s2-*.json"))
    (damaged / "accuracy-a.json").write_text(cell.read_text().replace("ok", "OK"))
    (damaged / "accuracy-b.json").write_text(cell.read_text()[:200])
    (folder / "file").touch()
    return folder


@pytest.fixture
def call(prepared, capsys, monkeypatch):
    """Run a command line there: what it printed, as text."""
    for name in [name for name in os.environ if name.startswith("JEMBENCH_") and name != "JEMBENCH_TESTS_FOLDER"]:
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
        return "".join(parts) + f"--- exit code {code}\n\n"

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
        changed = difflib.unified_diff(before.splitlines(), text.splitlines(), "expected", "now", lineterm="")
        if text != before:
            pytest.fail(
                f"{path.name} is not what it was. If that is meant: pytest tests/golden --update-golden\n"
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


def test_help(call, golden):
    lines = [f"{words} --help".strip() for words in named(cli, click.Context(cli))]
    golden("help", "".join(call(line) for line in lines))


@pytest.fixture
def no_pictures(monkeypatch):
    """Pictures are empty files: to draw them would take a minute."""
    monkeypatch.setattr(Figure, "savefig", lambda *arguments, **options: None)


def test_the_numbers_of_figures(call, golden, prepared, no_pictures):
    """Of long files, some thirty lines."""
    printed = call("figures --format png --output figures")
    for path in sorted((prepared / "figures").glob("*.csv")):
        lines = path.read_text().splitlines(keepends=True)
        printed += f"--- {path.name}: {len(lines)} lines\n{''.join(lines[:: max(1, len(lines) // 30)])}"
    golden("figures", printed)


def test_the_layout_of_a_store(call, golden, zoo_of_tests, tmp_path, no_pictures):
    """The files that a run leaves, and the keys of its records."""
    tiny = f"--models zoo_of_tests:jem --dataset zoo_of_tests:data --recipe {zoo_of_tests / 'tiny.toml'}"
    call(f"run hybrid {tiny} --metrics accuracy,energy-gap --store {tmp_path}")
    files = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    text = "".join(f"{pattern}\n" for pattern in sorted({anonymous(path.relative_to(tmp_path)) for path in files}))
    for folder in ("cells", "fits"):
        record = next(path for path in files if folder in path.parts and path.suffix == ".json")
        text += f"\n--- the keys of {folder}\n" + "".join(f"{key}\n" for key in keys(json.loads(record.read_text())))
    golden("layout", text)


def anonymous(path):
    return re.sub(r"\b[0-9a-f]{10,16}\b", "<id>", path.as_posix())


def keys(record, path=""):
    for key, value in record.items():
        yield f"{path}{key}"
        if isinstance(value, dict) and key not in ("packages", "recipe", "identity", "values"):
            yield from keys(value, f"{path}{key}.")


def test_no_other_file_is_expected(request):
    names = {f"{name}.txt" for name in [*COMMANDS, "help", "figures", "layout"]}
    others = [path for path in EXPECTED.iterdir() if path.name not in names]
    if request.config.getoption("--update-golden"):
        for path in others:
            path.unlink()
    else:
        assert others == []
