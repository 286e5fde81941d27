"""``jembench import``, and the fit that it makes, from one end to the other."""

import json
import unicodedata
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch.nn import functional as F

from jembench.api.stored import open_store
from jembench.catalog import registry
from jembench.interfaces import DataSpec
from jembench.models.nets import build_net
from jembench.store import checkpoint

DIGITS = DataSpec(name="digits", shape=(1, 8, 8), num_classes=10)


@pytest.fixture
def published(jembench):
    """A checkpoint as JEM's authors write them, for digits, in the folder where the command is
    called.
    """
    torch.manual_seed(0)
    names = build_net("wrn-10-1", DIGITS).state_dict()
    weights = {
        name if name.startswith("class_output") else f"f.{name}": value
        for name, value in names.items()
    }
    buffer = torch.rand(50, 1, 8, 8) * 2 - 1
    torch.save({"model_state_dict": weights, "replay_buffer": buffer}, "DIGITS_MODEL.pt")
    return buffer


def test_from_a_published_checkpoint_to_a_row_of_the_table(jembench, published):
    done = jembench("import", "jem", "DIGITS_MODEL.pt", "--name", "jem-authors")
    (folder,) = Path("runs/fits").iterdir()
    assert done == (
        0,
        "   model  jem:net=wrn-10-1, 77,418 parameters, every name and shape fits\n"
        "  chains  pcd:buffer=50\n"
        f" written  {folder}\n"
        "    next  jembench run hybrid --models jem-authors --dataset digits\n",
        "",
    )
    assert torch.equal(checkpoint.read(folder / "sampler.safetensors")["images"], published)
    record = json.loads((folder / "fit.json").read_text())
    assert record["status"] == "imported"
    assert record["provenance"]["imported"]["file"] == "DIGITS_MODEL.pt"
    assert record["provenance"]["imported"]["sha256"].startswith(record["recipe"]["source"])
    metrics = ("--metrics", "accuracy,energy-gap,iteration-time", "--limit", "40")
    arguments = ("run", "hybrid", "--models", "jem-authors", *metrics)
    first = jembench(*arguments, "--format", "json")
    assert first.code == 0, first.err
    assert "--seeds" not in jembench(*arguments).out  # it has one seed
    (recipe,) = {row["recipe"] for row in json.loads(first.out)["rows"] if not row["source"]}
    assert recipe.startswith("pretrained+chains.sampler=pcd:buffer=50+source=")
    assert jembench(*arguments, "--format", "json").out == first.out
    cells = [json.loads(path.read_text()) for path in Path("runs/cells").iterdir()]
    by_metric = {cell["metric"]: cell["outcome"] for cell in cells}
    assert (
        by_metric["iteration-time"]["reason"]
        == "The model was trained elsewhere: nothing is known of its training."
    )
    assert by_metric["energy-gap"]["status"] == "ok"
    assert [path.name for path in Path("runs/fits").iterdir()] == [folder.name]
    assert "jem-authors" in jembench("report", "--limit", "40").out


def test_commands_of_one_model_and_the_report_find_an_import_by_its_name(
    jembench, published, zoo_of_tests
):
    jembench("import", "jem", "DIGITS_MODEL.pt", "--name", "jem-authors")
    (folder,) = Path("runs/fits").iterdir()
    assert jembench("train", "jem-authors").out == f"{folder}\n"
    assert jembench("sample", "jem-authors").code == 0
    assert open_store().load("jem-authors").folder == folder
    both, recipe = (
        "jem-authors,baseline:net=small-2",
        ("--recipe", zoo_of_tests / "tiny.toml", "--set", "epochs=0.1"),
    )
    jembench("run", "hybrid", "--models", both, "--metrics", "accuracy", "--limit", "40", *recipe)
    for models in ("jem-authors", both):
        report = jembench("report", "--models", models, "--limit", "40", "--format", "json")
        assert report.code == 0, report.err
        assert json.loads(report.out)["rows"][0]["model"] == "jem:net=wrn-10-1"
    assert len(list(Path("runs/fits").iterdir())) == 2


EXPERIMENT = """
title = "Mine"
models = ["jem-authors"]
metrics = ["accuracy", "is"]
sampler = "sgld:steps=2"
limit = 40
[names]
Theirs = "jem-authors"
[headings]
accuracy = "Hits"
"""


def test_an_experiment_has_the_options_of_run_and_names_an_import(jembench, published):
    jembench("import", "jem", "DIGITS_MODEL.pt", "--name", "jem-authors")
    Path("mine.toml").write_text(EXPERIMENT)
    assert (
        "the suite mine has a block without datasets. Name some."
        in jembench("run", "mine.toml").err
    )
    run = ("run", "mine.toml", "--dataset", "digits")
    (planned,) = json.loads(jembench(*run, "--dry-run", "--format", "json").out)
    assert any(
        "sampler=sgld:steps=2" in metric for metric in [*planned["to_do"], *planned["missing"]]
    )
    for command in (
        (*run, "--models", "jem-authors", "--metrics", "accuracy,nll"),
        ("report", "mine.toml"),
    ):
        done = jembench(*command)
        assert done.code == 0, done.err
        assert "Theirs" in done.out
        assert "Hits" in done.out
    assert "Ours" in jembench("report", "--limit", "40", "--name", "Ours=jem-authors").out
    done = jembench(
        "run",
        "hybrid",
        "--models",
        "jem:net=wrn-10-1",
        "--recipe",
        "digits",
        "--metrics",
        "accuracy",
        "--dry-run",
    )
    assert (
        "--models jem-authors, or models = ['jem-authors'] in a file, measures those." in done.err
    )


def test_other_weights_need_another_name(jembench, published):
    assert jembench("import", "jem", "DIGITS_MODEL.pt").code == 0
    assert jembench("import", "jem", "DIGITS_MODEL.pt").code == 0  # the same fit
    content = torch.load("DIGITS_MODEL.pt", weights_only=True)
    content["model_state_dict"]["class_output.bias"] += 1
    torch.save(content, "DIGITS_MODEL.pt")
    done = jembench("import", "jem", "DIGITS_MODEL.pt")
    assert (done.code, done.out) == (2, "")
    assert "'DIGITS_MODEL' is the name of another model. Choose another with --name." in done.err
    assert jembench("import", "jem", "DIGITS_MODEL.pt", "--name", "second").code == 0
    assert len(list(Path("runs/fits").iterdir())) == 2


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["jem", "nowhere.pt"], "There is no file nowhere.pt. Check the path."),
        (["gem", "DIGITS_MODEL.pt"], "There is no importer named 'gem'. Nearest: jem"),
        (["jem", "DIGITS_MODEL.pt", "--name", "jem"], "'jem' is the name of another model."),
        (["jem", "DIGITS_MODEL.pt", "--name", "a:b=c"], "'a:b=c' cannot be a name"),
        (
            ["weights", "DIGITS_MODEL.pt"],
            "A plain state_dict does not say whose weights it holds. Name the model: --model",
        ),
        (
            ["jem", "DIGITS_MODEL.pt", "--dataset", "cifar10"],
            "The replay buffer in DIGITS_MODEL.pt is (50, 1, 8, 8)",
        ),
        (
            ["weights", "DIGITS_MODEL.pt", "--model", "baseline"],
            "do not fit baseline, and nothing was imported",
        ),
    ],
)
def test_an_import_that_fails_writes_nothing(arguments, text, jembench, published):
    done = jembench("import", *arguments)
    assert (done.code, done.out) == (2, "")
    assert text in done.err
    assert [path.name for path in Path().iterdir()] == ["DIGITS_MODEL.pt"]


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_chains_that_are_not_finite_are_refused(value, jembench, published, monkeypatch):
    from jembench_jem import importer

    # whatever another importer would let pass
    monkeypatch.setattr(importer, "_fault", lambda images, data: "")
    content = torch.load("DIGITS_MODEL.pt", weights_only=True)
    content["replay_buffer"][2, 0, 3, 3] = value
    torch.save(content, "DIGITS_MODEL.pt")
    done = jembench("import", "jem", "DIGITS_MODEL.pt")
    assert done.code == 2
    assert "hold numbers that are not finite, and nothing was imported: images." in done.err
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    "extra", [["--set", "chains.sampler=sgld:steps=5"], ["--dataset", "zoo_of_tests:data"]]
)
def test_a_fit_that_was_not_imported_is_never_trained(extra, jembench, published, zoo_of_tests):
    jembench("import", "jem", "DIGITS_MODEL.pt", "--name", "jem-authors")
    done = jembench("run", "hybrid", "--models", "jem-authors", "--metrics", "accuracy", *extra)
    assert (done.code, done.out) == (2, "")
    assert "The store runs has no imported jem-authors" in done.err
    assert len(list(Path("runs/fits").iterdir())) == 1


def test_parts_of_a_training_beside_the_model_are_left_out_and_told(jembench):
    torch.manual_seed(0)
    model = {
        f"model.{name}": value for name, value in build_net("small-4", DIGITS).state_dict().items()
    }
    torch.save({"state_dict": model | {"criterion.weight": torch.ones(10)}}, "w.ckpt")
    arguments = ("w.ckpt", "--model", "baseline:net=small-4")
    done = jembench("import", "weights", *arguments)
    assert (done.code, done.err) == (0, "")
    again = jembench("import", "weights:prefix=model.", *arguments)
    assert again == done
    assert "  unused  criterion.weight\n" in done.out


@pytest.mark.parametrize(("on_disk", "typed"), [("NFD", "NFC"), ("NFC", "NFD")])
def test_a_file_is_found_in_either_unicode_form(jembench, on_disk, typed):
    file, name = (unicodedata.normalize(form, "été") for form in (on_disk, typed))
    torch.manual_seed(0)
    torch.save(build_net("small-4", DIGITS).state_dict(), f"{file}.pt")
    arguments = ("import", "weights", f"{name}.pt", "--model", "baseline:net=small-4")
    done = jembench(*arguments)
    assert (done.code, done.out) == (2, "")
    assert "'été' cannot be a name: it has more than letters, digits" in done.err
    done = jembench(*arguments, "--name", "summer")
    assert done.code == 0, done.err


def test_an_import_of_another_range_is_measured_in_it(jembench):
    """The names of the file begin with a wrapper's and a module's."""
    Path("mine.py").write_text(
        "from torch import nn\n\n\nclass Net(nn.Module):\n"
        "    def __init__(self, width=8):\n"
        "        super().__init__()\n"
        "        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), "
        "nn.Linear(width, 10))\n\n"
        "    def forward(self, x):\n"
        "        return self.layers(x)\n"
    )
    names = ("layers.1.weight", "layers.1.bias", "layers.3.weight", "layers.3.bias")
    shapes = ((8, 64), (8,), (10, 8), (10,))
    pairs = zip(names, shapes, strict=True)
    weights = {f"module.model.{name}": torch.rand(shape) - 0.5 for name, shape in pairs}
    torch.save({"epoch": 1, "model": weights}, "mine.pt")
    test = registry.resolve("datasets", "digits").make().split("test")
    first, bias, second, last = weights.values()
    x = (test.images.flatten(1) / 255 - 0.3) / 0.5
    logits = (x @ first.T + bias).relu() @ second.T + last
    expected = float(F.cross_entropy(logits.double(), test.labels))

    done = jembench(
        *("import", "weights", "mine.pt", "--model", "mine.py:Net", "--name", "own"),
        *("--set-input", "bounds=0..1,mean=.3,std=.5"),
    )
    assert done.code == 0, done.err
    assert "model=mine:Net,std=.5, 610 parameters" in done.out
    as_named = ("own", "--plugin", "mine.py")
    of_files = ("adapted:model=mine.py:Net,mean=.3,std=.5,weights=mine.pt",)
    for words in (as_named, of_files):
        run = jembench("run", "hybrid", "--metrics", "nll", "--models", *words)
        assert run.code == 0, run.err
    cells = [json.loads(path.read_text()) for path in Path("runs/cells").iterdir()]
    measured = [cell["outcome"]["values"]["nll"]["value"] for cell in cells]
    assert measured == pytest.approx([expected] * 2, abs=1e-6)


@pytest.mark.parametrize("is_named", [True, False])
def test_outputs_without_names_are_noted_unless_the_file_names_them(jembench, is_named):
    for part in ("train", "test"):
        for label in ("cat", "dog"):
            folder = Path("photos", part, label)
            folder.mkdir(parents=True)
            for place in range(4):
                pixels = torch.randint(0, 256, (8, 8), dtype=torch.uint8).numpy()
                Image.fromarray(pixels).save(folder / f"{part}{place}.png")
    data = DataSpec(name="photos", shape=(1, 8, 8), num_classes=2)
    content = {"state_dict": build_net("mlp-4", data).state_dict()}
    if is_named:
        content["classes"] = ["cat", "dog"]
    torch.save(content, "own.pt")
    named = ("--dataset", "imagefolder:root=photos,grey=true")
    model = ("--model", "baseline:net=mlp-4", "--set-input", "bounds=0..1")
    done = jembench("import", "weights", "own.pt", *model, "--name", "own", *named)
    assert done.code == 0, done.err
    assert ("does not name its outputs" in done.err) is not is_named
    run = jembench("run", "hybrid", "--metrics", "nll", "--models", "own", *named)
    assert run.code == 0, run.err
    assert "does not name its outputs" not in run.err
