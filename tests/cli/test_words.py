"""Answers to command lines that are nearly right."""

import csv
import sys
import tomllib
from pathlib import Path

import pytest
import torch

import jembench.api.listing as listing
from jembench.catalog import discovery
from jembench.catalog.discovery import KINDS
from jembench.catalog.spec import Spec
from jembench.errors import unknown
from jembench.interfaces import Value
from jembench.store.outcome import Cell, FitKey, Outcome
from jembench.store.store import Store

MODULE = """
from torch import nn

class MyEBM(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.net = nn.Linear(64, width)

class Plain(nn.Module):
    def __init__(self):
        super().__init__()

class Untyped(nn.Module):
    def __init__(self, width, deep="yes"):
        super().__init__()
        self.net = nn.Linear(64, width)

def _private(): ...
"""
PLUGINS = Path(__file__).parents[2] / "plugins"


@pytest.fixture
def told(jembench):
    """Run a command that is wrong; return what it says."""

    def told(*arguments):
        Path("my_ebm.py").write_text(MODULE)
        done = jembench(*arguments)
        assert (done.code, done.out) == (2, ""), done
        assert len(done.err.splitlines()) == 1
        return done.err

    yield told
    sys.modules.pop("my_ebm", None)


@pytest.mark.parametrize(
    ("name", "build"),
    [
        (
            "Untyped",
            "build(data_spec, *, width: int, deep: str = 'yes'): return Untyped(width=width, "
            "deep=deep)",
        ),
    ],
)
@pytest.mark.parametrize("command", [["train"], ["import", "weights", "w.pt", "--model"]])
def test_a_class_that_takes_no_description_is_told_how_to_write_one(told, name, build, command):
    torch.save({"net.weight": torch.zeros(32, 64)}, "w.pt")
    said = told(*command, f"my_ebm:{name}")
    assert build in said
    assert "name my_ebm:build" in said


@pytest.mark.parametrize(
    "arguments",
    [
        ["--dataset", "imagefolder:root=~nosuchuser/x"],
        ["--dataset", "cifar10:root=~nosuchuser"],
        ["--dataset", "celeba:root=~nosuchuser"],
        ["--metrics", "ood:set=svhn:root=~nosuchuser"],
        ["--metrics", "fid", "--set", "fid.features=inception:weights=~nosuchuser/w.pth"],
        ["--models", "hf:~nosuchuser/x"],
        ["--models", "timm:resnet18,weights=~nosuchuser/x"],
    ],
)
def test_the_home_folder_of_an_unknown_user(told, arguments):
    assert "the home folder ~nosuchuser is not known. Write the whole path." in told(
        "run", "hybrid", *arguments
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--dataset", "../pets3"],
            "'../pets3' is a path, not a spec. For images in a folder write imagefolder:root=",
        ),
        (["--dataset", "/data/pets"], "write imagefolder:root=/data/pets."),
        (
            ["--dataset", "pets"],
            "There is no dataset named 'pets'. For its images write imagefolder:root=pets.",
        ),
        (["--models", "my_ebm.py"], "It defines MyEBM, Plain, Untyped. Write my_ebm:MyEBM."),
        (["--models", "./my_ebm.py"], "It defines MyEBM, Plain, Untyped. Write my_ebm:MyEBM."),
        (
            ["--models", "zoo/my_ebm.py"],
            "is a file, not a spec. Write --plugin zoo/my_ebm.py and my_ebm:NAME.",
        ),
        (
            ["--models", "my_ebm:MyEBN"],
            "my_ebm defines no MyEBN; it defines MyEBM, Plain, Untyped. Write my_ebm:M",
        ),
        (["--models", "my_ebm:MyEBN", "--plugin", "my_ebm.py"], "it defines MyEBM, Plain, Untyped"),
    ],
)
def test_paths_and_files_in_the_place_of_names(told, arguments, said):
    Path("pets").mkdir()
    assert said in told("run", "hybrid", *arguments)


EMPTY = [
    [option, ""]
    for option in ("--models", "--store", "--recipe", "--device", "--executor", "--format", "--set")
]


@pytest.mark.parametrize(
    "given", [*EMPTY, ["--store", " "], ["--store="], ["--device="]], ids=" ".join
)
def test_an_option_without_a_text(told, given):
    option = given[0].rstrip("=")
    assert f"The text after {option} is empty. Write a value, or leave the option out." in told(
        "run", "hybrid", *given
    )


@pytest.mark.parametrize(
    "line",
    ['recipe = ""', *(f'[execution]\n{key} = " "' for key in ("store", "device", "executor"))],
)
def test_an_experiment_without_a_text(told, line):
    Path("mine.toml").write_text(
        f'title = "Mine"\ndatasets = ["digits"]\nmodels = ["baseline"]\n{line}\n'
    )
    assert "it must be " in told("run", "mine.toml", "--dry-run")


@pytest.mark.parametrize("given", ["jem:", "jem:net=cnn,", "jem,,baseline", ",jem"])
def test_a_part_of_a_list_that_is_empty(told, given):
    said = told("run", "hybrid", "--models", given)
    assert "a part between commas is empty. " in said or "'' is not key=value. " in said


@pytest.mark.parametrize("number", [10**18, 2**63, 10**30])
@pytest.mark.parametrize("command", ["train jem --seed", "sample jem --seed", "run hybrid --seeds"])
def test_a_seed_of_too_many_digits(told, command, number):
    assert "it must be" in told(*command.split(), number)


@pytest.mark.parametrize(
    "command", ["run hybrid", "report", "figures", "compare a b", "attack pgd"]
)
def test_a_limit_of_too_many_digits(told, command):
    text = f"--limit is {10**22}; it must be a whole number of at most 63 bits."
    assert text in told(*command.split(), "--limit", 10**22)


def test_an_empty_name_is_not_listed():
    assert str(unknown("model", "x", ["", "jem"], "")) == "There is no model named 'x'. Known: jem."


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "suites"])
def test_descriptions_have_no_markup_of_documentation(kind):
    titles = [entry.title for entry in listing.entries(kind)]
    assert not [title for title in titles if "``" in title or ":`" in title]


def test_what_pytorch_advises_is_not_repeated(told):
    torch.save(torch.nn.Linear(2, 2), "whole.pt")
    said = told("import", "weights", "whole.pt", "--model", "baseline")
    assert "PyTorch says: " in said
    assert "torch.nn.modules.linear.Linear" in said
    assert not [
        word for word in ("x1b", "weights_only", "allowlist", "trust", "Please") if word in said
    ]


@pytest.mark.parametrize(
    ("format", "file", "remedy"),
    [
        ("html", "v.pdf", "--format html writes no .pdf: name another file"),
        ("csv", "v.HTML", "write --format html, or name another file"),
        ("table", "v.csv", "write --format csv, or name another file"),
        ("latex:interval=pm", "v.md", "write --format markdown"),
    ],
)
def test_a_file_whose_ending_promises_another_format(told, format, file, remedy):
    assert remedy in told("report", "--format", format, "--output", file)
    assert not Path(file).exists()


# --- plugins that are not installed ---------------------------------------------------------------


def test_the_table_of_first_party_names_is_that_of_the_plugins():
    names_of_kinds = {}
    for project in PLUGINS.glob("*/pyproject.toml"):
        about = tomllib.loads(project.read_text())["project"]
        for group, entries in about["entry-points"].items():
            kind = group.removeprefix("jembench.")
            if kind not in ("api", "figures", "suites"):
                names_of_kinds.setdefault(kind, {})[about["name"]] = sorted(entries)
            for package in entries.values() if kind == "suites" else ():
                folder = project.parent / package.replace(".", "/")
                for kind, pattern in (("suites", "*.toml"), ("recipes", "recipes/*.toml")):
                    if names := sorted(path.stem for path in folder.glob(pattern)):
                        names_of_kinds.setdefault(kind, {})[about["name"]] = names
    table = Path(discovery.__file__).with_name("first_party.toml")
    assert tomllib.loads(table.read_text()) == names_of_kinds


@pytest.fixture
def without(monkeypatch):
    """Hide the components of distributions."""

    def without(*distributions):
        whole = discovery.catalogue()
        left = [
            component
            for component in whole.components
            if component.distribution not in distributions
        ]
        monkeypatch.setattr(discovery, "catalogue", lambda: whole._replace(components=tuple(left)))

    return without


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["train", "dat"], "The model 'dat' is in the plugin jembench-dat"),
        (["run", "selective"], "The suite 'selective' is in the plugin jembench-energy-ood"),
        (
            ["run", "hybrid", "--metrics", "shift:set=corrupted"],
            "metric 'shift' is in the plugin jembench-robustness",
        ),
        (
            ["run", "hybrid", "--executor", "slurm:gpus=0"],
            "The executor 'slurm' is in the plugin jembench-slurm",
        ),
        (
            ["run", "hybrid", "--recipe", "dat-paper"],
            "The recipe 'dat-paper' is in the plugin jembench-dat",
        ),
        (
            ["run", "hybrid", "--metrics", "ood:set=interp,score=vim"],
            "score 'vim' is in the plugin jembench-energy-ood",
        ),
    ],
)
def test_the_plugin_of_a_name_is_said(told, without, arguments, what):
    without("jembench-dat", "jembench-energy-ood", "jembench-robustness", "jembench-slurm")
    assert f"{what}, which is not installed here. Install it (pip install jembench-" in told(
        *arguments
    )


def test_a_report_needs_no_plugin_of_a_model(jembench, without):
    fit = FitKey(
        model=Spec("dat:net=wrn-16-1"), dataset=Spec("digits"), recipe="mine", seed=0, id="f0"
    )
    values = {"accuracy": Value(97.0, 96.0, 98.0, 9, "%", "higher")}
    outcome = Outcome(status="ok", protocol="accuracy", values=values)
    Store(Path("runs")).write_cell(
        Cell(id="c0", fit=fit, metric=Spec("accuracy"), outcome=outcome), {}
    )
    experiment = (
        'title = "Mine"\ndatasets = ["digits"]\nmetrics = ["accuracy"]\n'
        'models = ["dat", "baseline"]\n'
    )
    Path("mine.toml").write_text(experiment)
    without("jembench-dat")
    done = jembench("report", "mine.toml", "--format", "csv")
    assert (
        "Note: All results named dat are shown, whatever their options and recipe: The model "
        "'dat' is in" in done.err
    )
    assert [row["model"] for row in csv.DictReader(done.out.splitlines())] == ["dat:net=wrn-16-1"]
