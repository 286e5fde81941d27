"""Hostile texts do nothing to a terminal, a page, a paper or a spreadsheet."""

import csv
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest

from jembench.catalog.spec import Spec
from jembench.interfaces import Value
from jembench.interfaces.evaluation import Stability
from jembench.report.card import card
from jembench.report.formats import csv_text
from jembench.store import records
from jembench.store.fits import FitRecord
from jembench.store.outcome import Cell, FitKey, Outcome
from jembench.store.store import Store

ESCAPES = "\x1b]0;title\x07\x1b[2J\x9b2J\u202e\x7f"
# as JSON, TOML and the options of specs have them
WRITTEN = r"\u001b]0;title\u0007\u001b[2J\u009b2J\u202e\u007f"
MOVES = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)

MARKUP = (
    "<img src=x onerror=alert(1)> [x](javascript:1) `a` | \\input{/etc/passwd}\\write18{x} $x$ "
    "^^5cinput \n# b"
)


def rewrite(path, change):
    """Change a record, with a digest that fits, as its author can."""
    record = json.loads(path.read_text())
    del record["digest"]
    change(record)
    records.write(path, record)


@pytest.fixture
def store(jembench):
    """Accuracies of two models; each text of the records that may be any is hostile."""

    def write(hostile):
        def change(record):
            outcome = record["outcome"]
            outcome["protocol"] = (
                f'accuracy:data=digits,set="{WRITTEN}",source="sgld:start=\\"{WRITTEN}\\",steps=2"'
            )
            outcome["details"] = {"suspicious": [hostile], "partial": "", hostile: hostile}
            outcome["reason"] = hostile
            outcome["values"]["accuracy"]["unit"] = "%"
            record["provenance"] |= {
                "command": hostile,
                "interventions": [hostile],
                "time": hostile,
                hostile: hostile,
            }
            record["fit"]["recipe"] = (
                f"digits+{' '.join(hostile.split())}" if hostile == MARKUP else "digits"
            )

        place = Store(Path("runs"))
        for seed in (0, 1):
            for model, accuracy in (("jem", 97.0), ("baseline", 96.0)):
                fit = FitKey(
                    model=Spec(model),
                    dataset=Spec("digits"),
                    recipe="digits",
                    seed=seed,
                    id=f"f{model}{seed}",
                )
                value = Value(accuracy, accuracy - 1, accuracy + 1, 100, "%", "higher")
                outcome = Outcome(status="ok", protocol="accuracy", values={"accuracy": value})
                cell = Cell(
                    id=f"c{model}{seed}",
                    fit=fit,
                    metric=Spec("accuracy"),
                    outcome=outcome,
                    provenance={"limit": None},
                )
                place.write_cell(cell, {"correct": np.arange(100) < accuracy})
        for path in Path("runs/cells").iterdir():
            rewrite(path, change)

    return write


COMMANDS = [
    *(
        ["report", "--format", form]
        for form in ("table", "json", "markdown", "latex", "csv", "html")
    ),
    ["report", "--claims"],
    ["report", "hybrid"],
    ["compare", "jem", "baseline"],
    ["compare", "jem", "baseline", "--format", "markdown"],
    ["figures"],
    ["status"],
    ["store", "list"],
    ["store", "verify"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_text_of_a_store_moves_the_cursor(jembench, store, command):
    store(ESCAPES)
    Path("runs/cells", f"a{ESCAPES}.json").write_text("{}")
    Path("runs/works").mkdir()
    Path("runs/works", f"a{ESCAPES}.json").write_text("{}")
    Path("runs/fits", f"a{ESCAPES}-f0").mkdir(parents=True)
    Path("runs/fits", f"a{ESCAPES}-f0", "fit.json").write_text("{}")
    Path("runs/fits", f"a{ESCAPES}-f0", "stray").write_text("{}")
    done = jembench(*command)
    assert done.code in (0, 1)
    assert not MOVES.findall(done.out + done.err)
    assert "title" in done.out + done.err or command[0] in ("status", "compare")


@pytest.mark.parametrize("format", ["json", "table"])
@pytest.mark.parametrize("command", [["store", "verify"], ["store", "gc"]])
def test_names_of_files_do_not_either(jembench, command, format):
    Path("runs/arrays").mkdir(parents=True)
    Path("runs/arrays", f"a{ESCAPES}-b0.npz").write_bytes(b"")
    done = jembench(*command, "--format", format)
    assert not MOVES.findall(done.out + done.err)
    assert "title" in done.out
    if format == "json":
        assert json.loads(done.out)


SUITE = f"""
title = "{WRITTEN}"
datasets = ["digits"]
metrics = ["accuracy"]
[names]
"a {WRITTEN}" = "baseline"
[headings]
accuracy = "b {WRITTEN}"
[[run]]
models = ["baseline"]
label = "c {WRITTEN}"
title = "d {WRITTEN}"
[[claim]]
id = "it"
text = "e {WRITTEN}"
metric = "accuracy"
higher = [["baseline", "digits-quick"]]
than = [["jem", "digits-quick"]]
"""


@pytest.mark.parametrize(
    "command", [["run", "--dry-run"], ["report"], ["report", "--claims"], ["init"]]
)
def test_texts_of_an_experiment_do_not_either(jembench, store, command):
    store("")
    Path("mine.toml").write_text(SUITE)
    done = jembench(command[0], "mine.toml", *command[1:])
    assert not MOVES.findall(done.out + done.err)
    Path("mine.toml").write_text(f'{SUITE}[execution]\nexecutor = "{WRITTEN}"\n"f {WRITTEN}" = 1\n')
    done = jembench(command[0], "mine.toml", *command[1:])
    assert done.code == 2
    assert not MOVES.findall(done.out + done.err)


def test_markdown_and_latex_have_the_text_and_none_of_its_markup(jembench, store):
    store(MARKUP)
    markdown = jembench("report", "--format", "markdown").out
    assert "onerror" in markdown
    assert not re.search(r"(?<!\\)<(?!/?sup>)|(?<!\\)\]\(", markdown)
    assert not re.search(r"^# ", markdown, re.MULTILINE)
    latex = jembench("report", "--format", "latex").out
    assert "onerror" in latex
    assert not re.search(r"\\(input|write)|\^\^|(?<!\\)\$x", latex)


@pytest.mark.parametrize("text", [MARKUP, "```\n<script>\n```"])
def test_a_model_card_has_the_text_and_none_of_its_markup(text, tmp_path):
    key = FitKey(
        model=Spec('jem:net="a<b>`c"'),
        dataset=Spec("digits"),
        recipe=" ".join(text.split()),
        seed=0,
        id="f0",
    )
    value = Value(97.0, 96.0, 98.0, 100, text.replace("\n", " "), "higher")
    outcome = Outcome(status="ok", protocol=f"accuracy {text}", values={text: value})
    cells = [Cell(id="c0", fit=key, metric=Spec("accuracy"), outcome=outcome)]
    cells.append(
        Cell(id="c1", fit=key, metric=Spec("ece"), outcome=Outcome(status="na", reason=text))
    )
    provenance = {
        "command": text,
        "python": text,
        "packages": {text: text},
        "hardware": {"device": text},
        "plugins": [text],
    }
    record = FitRecord(
        key,
        "done",
        "",
        {text: text},
        1,
        None,
        1.0,
        [],
        [text],
        provenance,
        stability=Stability(text, 1, 1, text, (), ""),
    )
    written = card(record, cells, tmp_path, "model.zip")
    body = written.split("---\n", 2)[2]
    prose = re.sub(r"^```.*?^```$|`[^`\n]*`", "", body, flags=re.DOTALL | re.MULTILINE)
    assert not re.search(r"(?<!\\)<|(?<!\\)\]\((?!fits)", prose), prose
    assert not re.search(r"^(# b|<script)", body, re.MULTILINE)
    assert body.count("\n```") == 8


FORMULAS = [
    "=1+1",
    "+1+1",
    "-x",
    "@x",
    "\t=1",
    "\n=1",
    "\tx",
    " =1",
    "\uff1d1",
    "\u3000\uff0bx",
    "\u200b=1",
    "\ufe63x",
]


@pytest.mark.parametrize("text", FORMULAS)
def test_no_cell_of_csv_is_a_formula(text):
    (name,), (cell,) = csv.reader(io.StringIO(csv_text([text], [{text: text}]), newline=""))
    assert (name, cell) == (f"'{text}",) * 2


@pytest.mark.parametrize("text", ["-1.5", "+2", "a=1", "— (x)", "[-1, 2]", "1 - 2", ""])
def test_other_cells_of_csv_stay_as_they_are(text):
    assert list(csv.DictReader(io.StringIO(csv_text(["a", "b"], [{"a": text, "b": ""}])))) == [
        {"a": text, "b": ""}
    ]


def test_a_carriage_return_begins_no_line_of_csv():
    assert csv_text(["a"], [{"a": "b\r=1"}]) == "a\nb\\r=1\n"
