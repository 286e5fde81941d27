import json
import sys
from pathlib import Path

import pytest

from jembench.catalog import discovery, plugin_files

SOURCE = '''
"""A user's file."""
print("a file that talks")

from torch import nn
from jembench.metrics.classification import Accuracy
from jembench.plugin import pretrained

def build(data, *, width: int = 4):
    """A network of one's own."""
    size = data.dimensions
    first, last = nn.Linear(size, width), nn.Linear(width, data.num_classes)
    return nn.Sequential(nn.Flatten(), first, nn.ReLU(), last)

def right():
    """How often it is right."""
    return Accuracy()

@pretrained
def painter(data):
    import torch

    class Painter(torch.nn.Module):
        def sample(self, n, y=None, *, generator):
            return torch.rand((n, *data.shape), generator=generator) * 2 - 1

    return Painter()

ENTRY_POINTS = {"models": {"of-file": "build"}, "metrics": {"right": "right"}}
'''
PLUGIN = ["--plugin", "my_file.py"]


@pytest.fixture(autouse=True)
def my_file(jembench):
    Path("my_file.py").write_text(SOURCE)
    yield
    plugin_files.forget()
    sys.modules.pop("my_file", None)


@pytest.fixture
def lines():
    """The lines of an output in which all these words stand."""

    def lines(out, *words):
        return [line for line in out.splitlines() if set(words) <= set(line.split())]

    return lines


def test_run_names_what_it_declares_and_repeats_it_in_what_comes_next(jembench, tiny):
    models = ["--models", "my_file.py/of-file:width=3,my_file:build", "--metrics", "right"]
    done = jembench("run", "hybrid", *models, *tiny, *PLUGIN)
    assert done.code == 0, done.err
    following = [line for line in done.out.splitlines() if "jembench " in line]
    assert len(following) == 2
    assert all("--plugin my_file.py" in line for line in following)
    cells = [json.loads(path.read_text()) for path in Path("runs/cells").iterdir()]
    assert {cell["metric"] for cell in cells} == {"right"}
    assert {cell["fit"]["model"] for cell in cells} == {"of-file:width=3", "my_file:build"}
    plugins = [
        plugin for cell in cells for plugin in cell["provenance"]["plugins"] if "my_file" in plugin
    ]
    content = discovery.find("models", "of-file").version
    assert any(
        plugin.startswith(f"my_file.py {content} [of-file = my_file:build]") for plugin in plugins
    )


@pytest.fixture
def run_after(jembench, tiny):
    """Run models of the file once something in it was replaced; how many fits and cells there then
    are.
    """

    def run(models, old="", new="", metrics="right", seeds="0"):
        source = Path("my_file.py").read_text()
        assert old in source
        Path("my_file.py").write_text(source.replace(old, new))
        asked_for = ["--models", models, "--metrics", metrics, "--seeds", seeds]
        done = jembench("run", "hybrid", *asked_for, *tiny, *PLUGIN)
        assert done.code == 0, done.err
        return [len(list(Path("runs", folder).iterdir())) for folder in ("fits", "cells")]

    return run


@pytest.mark.parametrize(
    "models", ["of-file", "my_file:build", "zoo_of_tests:own_net:net=my_file:build"]
)
def test_an_edited_model_is_trained_and_measured_anew(jembench, run_after, models):
    assert run_after(models) == [1, 1]
    assert run_after(models) == [1, 1]
    assert run_after(models, "def build", "# A remark changes nothing.\ndef build") == [1, 1]
    assert run_after(models, "nn.ReLU()", "nn.Tanh()") == [2, 2]
    assert [
        row["seeds"] for row in json.loads(jembench("report", "--format", "json").out)["rows"]
    ] == [[0]]
    # what it was before is there still
    assert run_after(models, "nn.Tanh()", "nn.ReLU()") == [2, 2]


def test_a_metric_s_edited_outliers_are_drawn_anew(run_after):
    Path("my_file.py").write_text(
        Path("my_file.py")
        .read_text()
        .replace('"metrics": {', '"ood_sets": {"mine": "outliers"}, "metrics": {')
        + """
class Outliers:
    def draw(self, test, data):
        return 255 - test.images

def outliers():
    return Outliers()
"""
    )
    metric = {"metrics": "ood:set=mine,resamples=0"}
    assert run_after("zoo_of_tests:classifier", **metric) == [1, 1]
    assert run_after("zoo_of_tests:classifier", **metric) == [1, 1]
    assert run_after(
        "zoo_of_tests:classifier", "255 - test.images", "test.images // 2", **metric
    ) == [1, 2]


def test_an_edited_metric_is_computed_anew(run_after):
    assert run_after("zoo_of_tests:classifier") == [1, 1]
    assert run_after(
        "zoo_of_tests:classifier", "    return Accuracy()", "    return Accuracy(resamples=9)"
    ) == [1, 2]


def test_train_and_sample(jembench, tiny):
    folder = jembench("train", "of-file", *tiny, *PLUGIN).out.strip()
    assert json.loads((Path(folder) / "fit.json").read_text())["key"]["model"] == "of-file"
    done = jembench("sample", "my_file:painter", *tiny, *PLUGIN)
    assert done.code == 0, done.err
    assert Path("samples.png").exists()


def test_the_environment_may_name_it(jembench, tiny, monkeypatch):
    monkeypatch.setenv("JEMBENCH_PLUGIN", "my_file.py")
    done = jembench("run", "hybrid", "--models", "of-file", "--metrics", "right", *tiny)
    assert done.code == 0, done.err
    assert "--plugin" not in done.out  # what the environment says, it goes on saying


@pytest.mark.parametrize("command", [["list"], ["list", "models"], ["train", "jem"], ["report"]])
@pytest.mark.parametrize(
    ("text", "cause"),
    [("1 / 0", "ZeroDivisionError: division by zero"), ("raise SystemExit(3)", "SystemExit: 3")],
)
def test_a_broken_file_is_one_paragraph(jembench, command, text, cause):
    Path("my_file.py").write_text(text)
    done = jembench(*command, *PLUGIN)
    assert (done.code, done.out) == (2, "")
    assert (
        done.err == f"Error: The plugin my_file.py cannot be imported: {cause}. Correct the file.\n"
    )
    assert "my_file" not in sys.modules


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "nowhere.py",
            "--plugin is nowhere.py; it must be an existing Python file, named like a module: "
            "my_ebm.py.",
        ),
        (".", "--plugin is .; it must be an existing Python file"),
        ("__main__.py", "has the name of another module, __main__ ("),
        ("json.py", "has the name of another module, json ("),
        ("sys.py", "has the name of another module, sys (built-in). Rename the file."),
    ],
)
def test_what_is_no_plugin_is_told(jembench, name, text):
    if name.endswith(".py") and name != "nowhere.py":
        Path(name).write_text(SOURCE)
    done = jembench("list", "--plugin", name)
    assert (done.code, done.out) == (2, "")
    assert text in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("declared", "text"),
    [
        (
            "{'models': ['build']}",
            "ENTRY_POINTS.models is ['build']; it must be a table. Correct the file.",
        ),
        ("{'models': {'m': 3}}", "ENTRY_POINTS.models.m is 3; it must be text."),
        ("{'models': {3: 'build'}}", "ENTRY_POINTS.models is 3; it must be text."),
        (
            "{'models': {'a:b': 'build'}}",
            "ENTRY_POINTS.models is 'a:b'; it must be a name such as my-ebm.",
        ),
        ("{'modells': {}}", "ENTRY_POINTS is 'modells'; it must be one of models, "),
        ("3", "ENTRY_POINTS is 3; it must be a table."),
    ],
)
def test_declarations_that_nothing_can_be_made_of(jembench, declared, text):
    Path("my_file.py").write_text(f"def build(data): ...\nENTRY_POINTS = {declared}\n")
    done = jembench("list", *PLUGIN)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"Error: In my_file.py, {text}")


def test_a_declaration_of_what_is_not_there_is_a_broken_row_until_it_is_used(jembench, lines):
    Path("my_file.py").write_text("ENTRY_POINTS = {'models': {'of-file': 'nothing'}}\n")
    assert lines(jembench("list", *PLUGIN).out, "of-file", "broken:")
    done = jembench("train", "of-file", *PLUGIN)
    assert (done.code, done.out) == (2, "")
    assert done.err.endswith("module 'my_file' has no attribute 'nothing'. Correct the file.\n")
