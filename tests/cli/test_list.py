import json
import subprocess
import sys

import pytest

from jembench.experiment import recipe, suite


@pytest.fixture
def rows(jembench, unreadable):
    done = jembench("list", "--format", "json")
    assert done.code == 0
    return {(row["distribution"], row["name"]): row for row in json.loads(done.out)}


def test_every_component_has_a_row_with_its_status(rows):
    assert rows["zoo-park", "lion"] == {
        "kind": "models",
        "name": "lion",
        "distribution": "zoo-park",
        "version": "1.0",
        "target": "zoo_cli_park:lion",
        "status": "ok",
    }
    assert rows["zoo-park", "raises"]["status"] == "broken: RuntimeError: no food"
    assert {
        row["status"] for (distribution, _), row in rows.items() if distribution == "jembench"
    } == {"ok"}


def test_distributions_that_cannot_be_read_are_named(rows):
    assert "no section headers" in rows["cage", ""]["status"]


def test_an_option_whose_type_cannot_be_read_is_the_plugins_fault(jembench, zoo):
    (zoo / "zoo_cli_park.py").write_text("def lion(data_spec, *, net: 'Nowhere'): ...\n")
    (row,) = [
        row for row in json.loads(jembench("list", "--format", "json").out) if row["name"] == "lion"
    ]
    assert row["status"].startswith("broken: ")
    assert "Nowhere" in row["status"]


def test_our_components_are_fine_and_import_nothing_heavy():
    code = (
        "import sys; from jembench.cli.main import main; main(['list', '--format', 'json']); "
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *rows, modules = done.stdout.splitlines()
    assert {
        row["status"]
        for row in json.loads("\n".join(rows))
        if row["distribution"].startswith("jembench")
    } == {"ok"}
    assert {"torch", "torchvision", "scipy", "matplotlib"} & set(modules.split()) == set()


def test_a_kind_is_understood_with_a_hyphen(jembench):
    assert "uniform" in jembench("list", "ood-sets").out


def test_one_kind_with_options(jembench, zoo):
    done = jembench("list", "models", "--format", "json")
    models = {model["name"]: model for model in json.loads(done.out)}
    assert models["lion"]["title"] == "Roars [loudly]."
    assert models["lion"]["options"] == [
        {"name": "net", "type": "str", "required": True, "default": None},
        {"name": "width", "type": "int", "required": False, "default": 2},
        {"name": "lr", "type": "float | None", "required": False, "default": None},
    ]
    assert models["raises"]["problem"] == "RuntimeError: no food"
    assert done.err == "a plugin that talks\n"


@pytest.mark.parametrize("kind", ["figures", "formats"])
def test_a_component_is_described_although_its_docstring_begins_with_a_verb(jembench, kind):
    listed = json.loads(jembench("list", kind, "--format", "json").out)
    assert [entry for entry in listed if entry["title"].startswith(("Plan", "Return"))] == []


@pytest.mark.parametrize(
    ("kind", "name"), [("datasets", "imagefolder"), ("suites", "hybrid"), ("recipes", "paper")]
)
def test_one_of_a_kind(jembench, kind, name):
    (entry,) = json.loads(jembench("list", kind, name, "--format", "json").out)
    every = json.loads(jembench("list", kind, "--format", "json").out)
    assert entry in every
    assert entry["name"] == name


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("ood_sets", "For its images write imagefolder:root=flat."),
        ("references", "There is no reference named 'flat'."),
    ],
)
def test_a_name_that_is_none_of_the_kind(jembench, kind, text, tmp_path, monkeypatch):
    (tmp_path / "flat").mkdir()
    monkeypatch.chdir(tmp_path)
    done = jembench("list", kind, "flat")
    assert done.code == 2
    assert text in done.err


def test_suites(jembench, zoo):
    suites = {
        suite["name"]: suite
        for suite in json.loads(jembench("list", "suites", "--format", "json").out)
    }
    assert suites["hybrid"] == {
        "name": "hybrid",
        "title": suite.load("hybrid").title,
        "problem": "",
    }
    assert suites["feeding"]["problem"].startswith("suite feeding lacks models")
    assert "torn.toml is not valid TOML: " in suites["torn"]["problem"]
    assert "notes" not in suites


def test_a_package_of_suites_that_cannot_be_imported(jembench, zoo):
    (zoo / "zoo_cli_suites" / "__init__.py").write_text("import nothing_of_that_name")
    done = jembench("list", "suites")
    assert done.code == 0
    assert "broken: ModuleNotFoundError: No module named 'nothing_of_that_name'" in done.out
    assert "hybrid" in done.out


@pytest.mark.parametrize("name", ["digits", "jem++", "adversarial"])
def test_a_whole_recipe_is_a_file_that_trains_the_same(jembench, name, tmp_path):
    done = jembench("list", "recipe", name)
    assert (done.code, done.err) == (0, "")
    path = tmp_path / "mine.toml"
    path.write_text(done.out)
    assert recipe.load(str(path)).settings == recipe.load(name).settings


@pytest.mark.parametrize(
    ("kind", "folder", "text", "other"),
    [
        ("recipes", "recipes", 'title = "Hasty"\nepochs = "few"\n', "paper"),
        ("references", "reference", "[paper]\n", "jem-iclr2020/table1"),
    ],
)
def test_a_file_that_cannot_be_read_is_a_broken_row(jembench, zoo, kind, folder, text, other):
    (zoo / "zoo_cli_suites" / folder).mkdir()
    (zoo / "zoo_cli_suites" / folder / "lost.toml").write_text(text)
    done = jembench("list", kind)
    assert done.code == 0
    status = {line.split()[0]: "broken: " in line for line in done.out.splitlines() if line.strip()}
    assert (status["lost"], status[other]) == (True, False)
