"""Files that somebody else made: none of them chooses what code runs."""

import json
import random
import sys
from pathlib import Path

import pytest
import torch
from hostile import CANARY, write_cells, write_import

from jembench.store import records

CODE = ["canary:build", "canary.deep:build", "canary:build.x", "os:system"]
FORMS = [
    "{}",
    "{}:command=x",
    "jem:net={}",
    "jem:net={},norm=none",
    'baseline:net="{}"',
    "ood:set={}",
    "ood:set=imagefolder:root={}",
    "fid:features={}",
    "pcd:start={}",
    "accuracy,{}",
    "jembench/imagefolder:root={}",
    "weights:prefix={}",
]


@pytest.fixture
def canary(jembench, tmp_path, monkeypatch):
    """A module that could be imported and leaves a mark; gives whether it did."""
    folder = tmp_path / "anywhere"
    folder.mkdir()
    (folder / "canary.py").write_text(CANARY)
    Path("canary.py").write_text(CANARY)  # and where the user stands
    monkeypatch.syspath_prepend(folder)
    yield lambda: (folder / "CANARY").exists() or Path("CANARY").exists() or "canary" in sys.modules
    sys.modules.pop("canary", None)


@pytest.fixture
def told(jembench, canary):
    """Run a command: what it printed, which is no traceback."""

    def told(*arguments):
        done = jembench(*arguments)
        assert not canary(), arguments
        assert done.code in (0, 1, 2)
        assert "This is a bug" not in done.err, done.err
        assert "Traceback" not in done.err
        return done

    return told


# which is no spec
@pytest.mark.parametrize("form", [form for form in FORMS if form != "accuracy,{}"])
@pytest.mark.parametrize(
    ("code", "of"), [(CODE[0], "model"), (CODE[1], "model"), (CODE[0], "sampler")]
)
def test_the_record_of_an_imported_fit(told, form, code, of):
    write_import(**{"model": "jem", of: form.format(code)})
    done = told("run", "hybrid", "--models", "shared", "--dry-run")
    assert done.code == 2
    assert f" names {code}" in done.err
    assert "canary.py, or" in done.err or "deep.py, or" in done.err


@pytest.mark.parametrize(
    "metric", ["canary:build", "fid:features=canary:build", "ood:set=canary:build"]
)
def test_a_cells_metric_is_told_beside_everything_else(told, metric):
    write_cells("runs", metric=metric)
    done = told("compare", "jem", "baseline", "--format", "json")
    assert done.code == 0
    rows = {row["metric"]: row for row in json.loads(done.out)["rows"]}
    assert rows["accuracy"]["images_p"] is not None
    assert "names canary:build, which runs code that you did not name" in rows[metric]["reason"]
    assert told("report").code == 0
    assert "97" in told("report", "hybrid").out


@pytest.mark.parametrize("field", ["model", "dataset", "recipe"])
def test_a_cells_names_are_only_shown(told, field):
    write_cells("runs", **{field: "canary:build"})
    for command in (["report"], ["report", "--claims"], ["report", "hybrid"], ["figures"]):
        told(*command)
    assert "canary:build" in told("report", "--format", "csv").out


def test_a_recipe_file(told):
    Path("mine.toml").write_text('epochs = 1\n[model]\nnet = "canary:build"\n')
    done = told("run", "hybrid", "--models", "jem", "--recipe", "mine.toml", "--dry-run")
    assert done.code == 2
    assert "mine.toml names canary:build" in done.err


def test_a_folder_that_looks_like_a_distribution_is_not_installed(told):
    info = Path("evil.egg-info")
    info.mkdir()
    (info / "entry_points.txt").write_text("[jembench.models]\nevil = canary:build\n")
    (info / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1\n")
    assert "evil" not in told("list", "models", "--format", "json").out


def test_what_an_import_says_comes_next_names_the_users_code(jembench, zoo_of_tests):
    torch.save({"net.1.weight": torch.rand(3, 16), "net.1.bias": torch.rand(3)}, "w.pt")
    done = jembench(
        "import",
        "weights",
        "w.pt",
        "--model",
        "zoo_of_tests:classifier",
        "--dataset",
        "zoo_of_tests:data",
    )
    assert done.out.splitlines()[-1] == (
        "    next  JEMBENCH_TRUST=zoo_of_tests:classifier jembench run hybrid --models w "
        "--dataset zoo_of_tests:data"
    )


def test_what_the_user_names_is_loaded(jembench, canary):
    write_import("canary:build")
    jembench("run", "hybrid", "--models", "canary:build,shared", "--dry-run")
    assert canary()


def test_a_word_that_is_no_spec_names_no_code(jembench, canary):
    write_import("canary:build")
    run = ["run", "hybrid", "--models", "shared", "--dry-run"]
    assert jembench(*run, "--store", "canary:build").code == 2
    assert not canary()


def test_what_the_environment_names_for_an_option_of_specs_is_loaded(jembench, canary, monkeypatch):
    write_import("canary:build")
    run = ["run", "hybrid", "--models", "shared", "--dry-run"]
    monkeypatch.setenv("JEMBENCH_RUN_STORE", "canary:build")
    assert (jembench(*run).code, canary()) == (2, False)
    monkeypatch.delenv("JEMBENCH_RUN_STORE")
    monkeypatch.setenv("JEMBENCH_SET", "epochs=1 model.net=canary:build")
    jembench(*run)
    assert canary()


@pytest.mark.parametrize(
    "name", ["os.abort", "abort", "Own.method.__globals__", "Own.torch.compile", "", "partial"]
)
def test_a_file_names_nothing_that_a_plugin_has_imported(jembench, name):
    Path("my_plugin.py").write_text(
        "import functools, os, torch\nfrom os import abort\npartial = functools.partial(abort)\n"
        "class Own:\n    torch = torch\n    def method(self): ...\n"
    )
    write_import(f"my_plugin:{name}")
    done = jembench("run", "hybrid", "--models", "shared", "--dry-run", "--plugin", "my_plugin.py")
    sys.modules.pop("my_plugin", None)
    assert done.code == 2
    assert "runs code that you did not name" in done.err or not name


def test_files_at_random(told):
    """A few of many: any hostile text in any field of any file, and commands that read it."""
    rng = random.Random(0)
    for number in range(6):
        text = rng.choice(FORMS).format(rng.choice(CODE))
        store = f"runs{number}"
        write_cells(store, **{rng.choice(["metric", "model", "dataset", "recipe"]): text})
        write_import(*rng.sample([text, "jem"], 2))
        told(
            *rng.choice(
                [["compare", "jem", "baseline"], ["report"], ["report", "--claims"], ["figures"]]
            ),
            "--store",
            store,
        )
        told("run", "hybrid", "--models", "shared", "--metrics", "accuracy", "--dry-run")


def test_texts_of_a_store_do_nothing_to_the_terminal(told):
    write_cells("runs")
    for path in Path("runs/cells").iterdir():
        record = json.loads(path.read_text())
        del record["digest"]  # its author knows how to make digests
        record["outcome"] |= {
            "status": "na",
            "values": {},
            "reason": "\x1b]8;;http://x\x07click\x1b[2J [link=x]me[/link]",
        }
        records.write(path, record)
    Path("runs/cells/\x1b[31mred.json").write_text("{}")
    for format in ("table", "csv", "markdown", "latex", "json"):
        done = told("report", "--format", format)
        assert "\x1b" not in done.out + done.err
        assert "click" in done.out
        assert "Left out" in done.err
    assert r"\x1b]8;;http://x\x07click\x1b[2J [link=x]me[/link]" in told("report").out


@pytest.mark.parametrize("field", ["model", "metric", "recipe", "id"])
@pytest.mark.parametrize("text", ["jem:net=a\nb", "../../x", "*"])
def test_a_cell_whose_names_cannot_be_shown_is_passed_over(told, field, text):
    write_cells("runs")
    path = min(Path("runs/cells").iterdir())
    record = json.loads(path.read_text())
    del record["digest"]
    of = record if field in ("metric", "id") else record["fit"]
    of[field] = text
    records.write(path, record)
    done = told("report")
    assert "96" in done.out or "97" in done.out
    assert "\x1b" not in done.out + done.err
    if field != "recipe" or not text.isprintable():
        assert done.err.startswith(f"Note: Left out: In {path}") or "Left out: " in done.err
