"""A trained model goes to somebody else and counts there as if it had been trained there."""

import json
import shutil
import zipfile
from pathlib import Path

import pytest
import torch
import yaml
from fake_hub import TOKEN, serving

import jembench as jb
from jembench.running import fits
from jembench.store import checkpoint, manifest, records, tensors
from jembench.store.pictures import SAMPLES
from jembench.store.store import Store
from jembench.store.walk import verify

TINY = {"epochs": 0.2, "chains.sampler": "pcd:steps=1,buffer=100"}
RUN = [
    "run",
    "hybrid",
    "--models",
    "jem,baseline",
    "--metrics",
    "accuracy,ece",
    "--limit",
    "50",
    "--recipe",
    "digits",
]
RUN += [word for key, value in TINY.items() for word in ("--set", f"{key}={value}")]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A store with two models of digits, after a few iterations each."""
    root = tmp_path_factory.mktemp("share") / "runs"
    models, metrics = ["jem", "baseline"], ["accuracy", "ece"]
    how = {
        "datasets": "digits",
        "recipe": "digits",
        "settings": TINY,
        "store": root,
        "limit": 50,
        "progress": False,
    }
    jb.run("hybrid", models=models, metrics=metrics, **how)
    return root


@pytest.fixture
def archive(jembench, trained):
    done = jembench("push", "jem", "model.zip", "--store", trained, "--license", "mit")
    assert (done.code, done.err) == (0, "")
    return Path("model.zip")


def contents(root):
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in Path(root).rglob("*")
        if path.is_file()
    }


def test_a_model_that_was_fetched_is_used_and_not_trained_again(jembench, trained, monkeypatch):
    to = "shared"
    done = jembench("push", "jem", to, "--store", trained)
    assert done.code == 0
    assert done.out.splitlines()[-1] == f"   next  jembench fetch {to}"
    done = jembench("fetch", to)
    assert (done.code, done.err) == (0, "")
    assert "every id is the same here: nothing is trained or measured again" in done.out
    assert done.out.endswith("runs: 3 fits and files: 3 copied.\n")
    assert {finding.status for finding in verify(Store(Path("runs")))} == {"ok"}
    there = contents("runs")
    assert {name: content for name, content in contents(trained).items() if name in there} == there
    monkeypatch.setattr(fits.FitWork, "_train", None)
    assert jembench(*RUN, "--models", "jem").code == 0
    assert {name: content for name, content in contents("runs").items() if name in there} == there
    mine, theirs = (jb.load("jem", store=root) for root in (trained, "runs"))
    assert torch.equal(mine.sample(5).images, theirs.sample(5).images)
    images = mine.sample(5).images
    assert torch.equal(mine.logits(images), theirs.logits(images))
    (again,) = json.loads(jembench("fetch", to, "--format", "json").out)
    assert (again["fit"]["model"], again["results"], again["findings"], again["differences"]) == (
        "jem",
        2,
        [],
        [],
    )


def test_without_chains_samples_come_from_new_ones(jembench, trained, monkeypatch):
    assert jembench("push", "jem", "less.zip", "--without-chains", "--store", trained).code == 0
    assert jembench("fetch", "less.zip").code == 0
    monkeypatch.setattr(fits.FitWork, "_train", None)
    done = jembench("sample", "jem", *RUN[RUN.index("--recipe") :])
    assert done.code == 0
    assert "from new chains of 1 steps" in done.out
    assert "Samples come from new chains" in card_of("less.zip")
    with zipfile.ZipFile("less.zip") as opened:
        kept = {
            Path(info.filename).name: info.file_size
            for info in opened.infolist()
            if "fits/" in info.filename
        }
    assert kept["sampler.safetensors"] < 1000
    assert not [name for name in kept if name.startswith("buffer")]


def card_of(path):
    with zipfile.ZipFile(path) as opened:
        return opened.read("README.md").decode()


def test_the_card(archive, trained):
    _, front, body = card_of(archive).split("---\n", 2)
    facts = yaml.safe_load(front)
    cells = [cell for cell in Store(trained).cells() if cell.fit.model == "jem"]
    assert facts["license"] == "mit"
    assert facts["datasets"] == ["digits"]
    assert facts["metrics"] == ["accuracy", "ece"]
    (model,) = facts["model-index"]
    by_label = {result["metrics"][0]["type"]: result["metrics"][0] for result in model["results"]}
    for cell in cells:
        ((label, value),) = cell.outcome.values.items()
        assert by_label[label]["value"] == value.value
        assert by_label[label]["args"] == {
            "low": value.low,
            "high": value.high,
            "n": 50,
            "protocol": cell.outcome.protocol,
        }
        assert f"`{cell.outcome.protocol}`" in body
    for said in (
        "did not intervene",
        "jembench fetch model.zip",
        "`jembench-jem",
        "Python 3.",
        "![](fits/jem-digits",
    ):
        assert said in body


def test_the_recipe_of_the_card_is_that_of_the_model(archive, tmp_path):
    from jembench.experiment import recipe

    toml = card_of(archive).partition("```toml\n")[2].partition("```")[0]
    (tmp_path / "theirs.toml").write_text(toml)
    trained_by = recipe.load("digits", [f"{key}={value}" for key, value in TINY.items()])
    assert recipe.load(str(tmp_path / "theirs.toml")).identity == trained_by.identity


def test_files_of_others_are_kept(jembench, trained):
    Path("mine.zip").write_text("mine")
    Path("mine").mkdir()
    Path("mine", "notes").write_text("mine")
    for to, remedy in (
        ("mine.zip", "--force"),
        ("mine", "Name a new one"),
        ("mine/notes", "Name a new one"),
    ):
        done = jembench("push", "jem", to, "--store", trained)
        assert (done.code, remedy in done.err) == (2, True), to
    assert Path("mine.zip").read_text() == "mine"
    assert jembench("push", "jem", "mine.zip", "--store", trained, "--force").code == 0


def unpacked(archive, **changed):
    """The folder of an archive, with other fields in the record of the fit, by somebody who can
    write manifests.
    """
    shutil.unpack_archive(archive, "theirs")
    (path,) = Path("theirs").glob("fits/*/fit.json")
    record = json.loads(path.read_text())
    record.pop("digest")
    for key, value in changed.items():
        record[key] = {**record[key], **value}
    home = path.parent
    home = home.rename(home.with_name(f"{home.name.rpartition('-')[0]}-{record['key']['id']}"))
    (home / SAMPLES).unlink()
    for chains in home.glob("buffer-*"):
        checkpoint.write(chains, checkpoint.read(chains), placed=True)
        record["files"][chains.name] = tensors.read_seal(chains).digest
    records.write(home / path.name, record)
    shutil.rmtree("theirs/cells")
    shutil.rmtree("theirs/arrays")
    manifest.write(Path("theirs"))
    return "theirs"


def test_what_differs_from_what_is_installed_is_named(jembench, archive):
    done = jembench(
        "fetch",
        unpacked(
            archive,
            key={"id": "0123456789"},
            identity={"model": {"name": "jem", "arguments": {"net": "small-9"}}},
        ),
    )
    assert done.code == 0
    assert "The model was trained with other code or options than are installed here" in done.out
    assert "model.net: small-9 -> auto" in done.out
    assert list(Path("runs/fits").glob("*-0123456789"))


def test_several_models_are_fetched_at_once_and_reported_without_their_data(
    jembench, trained, archive
):
    assert jembench("push", "baseline", "other.zip", "--store", trained).code == 0
    elsewhere = unpacked(archive, key={"dataset": "imagefolder:root=mine", "id": "0123456789"})
    done = jembench("fetch", elsewhere, "other.zip")
    assert done.code == 0
    assert (
        "The results can be reported; the model is used once its data are here. There is no "
        "folder" in done.out
    )
    assert "measured again (1 of 2 models)" in done.out
    assert [line.partition(",")[0] for line in done.out.splitlines() if "fit  " in line] == [
        "    fit  jem on imagefolder:root=mine",
        "    fit  baseline on digits",
    ]
    assert jembench("store", "list").code == 0


@pytest.mark.parametrize(
    "changed",
    [
        {"key": {"model": "os:system"}},
        {"key": {"dataset": "evil.module:data"}},
        {"recipe": {"optimizer": {"name": "os:system", "learning_rate": 1.0}}},
        {"recipe": {"chains": {"sampler": "pcd:start=os:system"}}},
    ],
)
def test_a_model_may_name_installed_components_alone(jembench, archive, changed):
    done = jembench("fetch", unpacked(archive, **changed))
    assert done.code == 2
    assert "which runs code that you did not name" in done.err
    assert not Path("runs").exists()


@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # of the client's own calls
def test_through_a_hub(jembench, trained, monkeypatch):
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", "cache")
    with serving() as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        address = server.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address)
        done = jembench("push", "baseline", "hf://user/it", "--store", trained)
        assert done.code == 0
        assert f"written  {server.url}/user/it/commit/" in done.out
        done = jembench("fetch", "hf://user/it")
        assert (done.code, "every id is the same here" in done.out) == (0, True)
        assert contents("runs").items() <= contents(trained).items()
