"""The table of SECURITY.md, row by row: what a file from somebody else can cause, and what it
cannot.
"""

import dataclasses
import importlib.util
import json
import re
import socket
import sys
from pathlib import Path

import pytest
import torch
from hostile import CANARY, write_cells, write_import

from jembench.experiment.crossing import make_plan
from jembench.experiment.suite import Run, Suite
from jembench.experiment.works import works
from jembench.store import records

ROW = re.compile(r"^\| (.*?) \| ", re.MULTILINE)
ROOT = Path(__file__).parents[2]
FILE = 'title = "Mine"\ndatasets = ["digits"]\nmetrics = ["accuracy"]\n'
TOLD = {}


def row(name):
    """Return a decorator that names the row of the table that a test is of."""

    def decorate(test):
        TOLD[name] = test
        return test

    return decorate


@pytest.fixture
def stranger(jembench, tmp_path, monkeypatch, contents):
    """Call a command: no code of the stranger runs, nothing is connected to, and no file outside
    the store changes.
    """
    anywhere, outside = tmp_path / "anywhere", tmp_path / "outside"
    anywhere.mkdir()
    for folder in (anywhere, Path()):
        (folder / "canary.py").write_text(CANARY)
    outside.mkdir()
    (outside / "kept.csv").write_text("mine")
    monkeypatch.syspath_prepend(anywhere)
    connections = []

    def connect(self, address):
        connections.append(address)
        raise OSError("refused by the test")

    def look_up(*address, **_):
        connections.append(address)
        raise socket.gaierror("refused by the test")

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket, "getaddrinfo", look_up)

    def call(*arguments):
        before = contents(outside) | contents(anywhere)
        done = jembench(*arguments)
        assert connections == []
        assert contents(outside) | contents(anywhere) == before, arguments
        assert "canary" not in sys.modules
        assert not Path("CANARY").exists()
        assert "This is a bug" not in done.err, done.err
        return done

    yield call
    sys.modules.pop("canary", None)


def test_every_row_has_its_test():
    rows = ROW.findall((ROOT / "SECURITY.md").read_text())
    assert rows[0] == "from others"
    assert list(TOLD) == rows[1:]
    assert all(globals()[test.__name__] is test for test in TOLD.values())


COMMANDS = [
    "report",
    "status",
    "figures",
    "store verify",
    "store gc --yes",
    "store merge runs",
    "fetch runs",
]


@row("a store, a folder or archive of a shared model, a repository of the hub")
def test_a_store(stranger):
    write_cells("runs", metric="canary:build")
    write_import("canary:build")
    for command in COMMANDS:
        stranger(*command.split())
    assert stranger("run", "hybrid", "--models", "shared", "--dry-run").code == 2


LINKS = [
    "fits",
    "cells",
    "arrays",
    "readings",
    "features",
    "works",
    "leases",
    "figures",
    "fits/a-0123456789",
]


@pytest.mark.parametrize(
    "link", [*LINKS, "readings/0123456789", "features/of-images", "works/slurm"]
)
def test_a_store_with_links(stranger, zoo_of_tests, link):
    write_cells("runs")
    Path("runs/features").mkdir()
    Path("runs/readings").mkdir()
    Path("runs/works").mkdir()
    write_import("jem")
    if Path("runs", link).exists():
        Path("runs", link).rename("moved")
    Path("runs", link).symlink_to("../../outside" if "/" not in link else "../../../outside")
    tiny = [
        "--dataset",
        "zoo_of_tests:data",
        "--recipe",
        zoo_of_tests / "tiny.toml",
        "--metrics",
        "accuracy",
    ]
    for command in (
        ["figures"],
        ["store", "gc", "--yes"],
        ["run", "hybrid", "--models", "zoo_of_tests:jem", *tiny],
    ):
        done = stranger(*command)
        assert (done.code, done.out) == (2, "")
        assert f"runs/{link} leads out of the store" in done.err


@row("a suite or a recipe in a file")
@pytest.mark.parametrize(
    "more",
    [
        'models = ["canary:build"]',
        'models = ["jem"]\nsettings = ["model.net=canary:build"]',
        'models = ["jem"]\nrecipe = "theirs.toml"',
        'models = ["hf:http://127.0.0.1:9/x"]',
        'models = ["jem"]\nreference = ["../outside/kept.csv"]',
    ],
)
def test_a_suite_or_a_recipe(stranger, more):
    Path("theirs.toml").write_text('epochs = 1\n[model]\nnet = "canary:build"\n')
    Path("mine.toml").write_text(FILE + more)
    assert stranger("run", "mine.toml", "--dry-run").code == 2
    assert stranger("report", "mine.toml").code in (0, 2)


@row("an experiment file")
@pytest.mark.parametrize(
    "more",
    [
        """executor = 'slurm:gpus=0,setup="touch ../outside/marked"'""",
        'executor = "ray:address=127.0.0.1:9"',
        'trackers = ["tensorboard:folder=../outside"]',
        'store = "../outside"',
        '[[report]]\nformat = "csv"\noutput = "../outside/kept.csv"',
    ],
)
def test_an_experiment(stranger, tmp_path, more):
    Path("link").symlink_to(tmp_path / "outside")
    Path("mine.toml").write_text(f'{FILE}models = ["baseline"]\n[execution]\n{more}\n')
    done = stranger("run", "mine.toml")
    assert (done.code, done.out) == (2, "")
    assert not Path("runs").exists()


@row("claims and published numbers in a file")
def test_claims(stranger):
    claim = (
        '[[claim]]\nid = "it"\ntext = "canary:build"\nmetric = "accuracy"\n'
        'than = [["canary:build", "digits"]]\n'
    )
    write_cells("runs")
    Path("mine.toml").write_text(f'{FILE}models = ["jem"]\n{claim}higher = [["jem", "digits"]]\n')
    done = stranger("report", "mine.toml", "--claims")
    assert done.code in (0, 2)
    assert "canary:build" in done.out + done.err


class Trap:
    """Imports the stranger's code when it is unpickled."""

    def __reduce__(self):
        return (__import__, ("canary",))


@row("weights, configurations and images")
def test_weights(stranger):
    torch.save({"net": Trap()}, "w.pt")
    assert stranger("import", "weights", "w.pt", "--model", "baseline").code == 2
    Path("theirs").mkdir()
    Path("theirs/canary.py").write_text(CANARY)
    auto = {"AutoConfig": "canary.build", "AutoModelForImageClassification": "canary.build"}
    Path("theirs/config.json").write_text(json.dumps({"model_type": "canary", "auto_map": auto}))
    torch.save({"net": Trap()}, "theirs/pytorch_model.bin")
    done = stranger(
        "run", "hybrid", "--models", "hf:./theirs", "--metrics", "accuracy", "--limit", "5"
    )
    assert done.code == 2
    is_installed = importlib.util.find_spec("transformers") is not None
    assert ("contains custom code" if is_installed else "transformers is not installed") in done.err


@row("a unit of work in a shared store")
@pytest.mark.parametrize("field", ["model", "dataset"])
def test_a_unit_of_work(stranger, zoo_of_tests, field):
    block = Run(models=("zoo_of_tests:classifier",), metrics=("accuracy",))
    plan = make_plan(
        Suite(name="zoo", title="", datasets=("zoo_of_tests:data",), runs=(block,)),
        recipe=str(zoo_of_tests / "tiny.toml"),
    )
    (unit,) = works(plan, lambda key: False)
    hostile = dataclasses.replace(unit, **{field: "canary:build"})
    Path("runs/works").mkdir(parents=True)
    Path("runs/works", f"{hostile.id}.json").write_text(hostile.job(0).text)
    done = stranger("work", hostile.id)
    assert done.code == 2
    assert "runs code that you did not name" in done.out + done.err


ACTIVE = {
    "table": "\x1b",
    "csv": "(?m)(^|,)=",
    "markdown": r"(?<!\\)<script> ",
    "latex": r"\\input\{x",
    "html": "<script> ",
}


@row("names of files, and texts in all of these")
def test_texts(stranger):
    write_cells("runs")
    for path in Path("runs/cells").iterdir():
        record = json.loads(path.read_text())
        del record["digest"]
        text = "=1 \x1b]0;title\x07 <script> \\input{x}"
        record["outcome"] |= {"status": "na", "values": {}, "reason": text}
        records.write(path, record)
    Path("runs/cells/\x1b[31mred.json").write_text("{}")
    for format, active in ACTIVE.items():
        done = stranger("report", "--format", format)
        assert "title" in done.out
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", done.out + done.err)
        assert not re.search(active, done.out)


@row("a `--plugin` file, an import path, an installed plugin, environment variables `JEMBENCH_...`")
@pytest.mark.parametrize("how", ["--plugin yours.py", "--models canary:build", "JEMBENCH_TRUST"])
def test_what_is_yours(stranger, jembench, monkeypatch, how):
    write_import("canary:build")
    Path("yours.py").write_text(CANARY)
    named = how.split()
    if how == "JEMBENCH_TRUST":
        monkeypatch.setenv(how, "canary:build")
        named = ["--models", "shared"]
    jembench("run", "hybrid", "--dry-run", *named)
    assert Path("CANARY").exists() or "canary" in sys.modules
