"""``jembench doctor``."""

import json
import shutil

import pytest

from jembench.catalog import discovery
from jembench.cli import doctor
from jembench.errors import JembenchError, Unavailable


@pytest.fixture
def findings(jembench, monkeypatch, tmp_path):
    """Run the doctor with nothing downloaded: what it says, by area, and its exit code."""
    monkeypatch.setenv("JEMBENCH_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))

    def call(*arguments):
        done = jembench("doctor", "--store", tmp_path / "runs", "--format", "json", *arguments)
        areas = {}
        for finding in json.loads(done.out):
            areas.setdefault(finding["area"], []).append(finding)
        return areas, done.code

    return call


def marks(findings):
    return {finding["what"].partition(":")[0]: finding["mark"] for finding in findings}


def test_a_bare_machine_is_healthy_and_says_what_is_missing(findings):
    areas, code = findings()
    assert code == 0
    assert list(areas) == ["versions", "devices", "data", "weights", "plugins", "store"]
    assert {finding["mark"] for finding in areas["versions"]} == {"ok"}
    assert marks(areas["data"])["digits"] == "ok"
    assert marks(areas["data"])["cifar10"] == "missing"
    (weights,) = areas["weights"]
    assert weights["mark"] == "missing"
    assert "--set fid.features=inception:download=true fetches them" in weights["remedy"]
    everything = [finding for area in areas.values() for finding in area]
    assert all(finding["remedy"] for finding in everything if finding["mark"] != "ok")


def test_a_broken_plugin_is_broken_and_an_unreadable_distribution_is_not_ours(findings, unreadable):
    areas, code = findings()
    assert code == 1
    broken, missing, ok = areas["plugins"]
    assert broken == {
        "area": "plugins",
        "mark": "broken",
        "what": "zoo-park 1.0 [raises = zoo_cli_raises:build]: RuntimeError: no food",
        "remedy": "Update or uninstall zoo-park.",
    }
    assert (missing["mark"], missing["what"].partition(":")[0]) == ("missing", "cage")
    assert "zoo-park 1.0" in ok["what"]


def test_the_table(jembench, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    lines = jembench("doctor", "--store", tmp_path).out.splitlines()
    (weights,) = [number for number, line in enumerate(lines) if "Inception: there is no" in line]
    assert lines[weights].split()[:2] == ["missing", "weights"]
    assert lines[weights + 1].split()[:2] == ["Needed", "for"]


def test_weights_in_the_cache(findings, tmp_path):
    from jembench.metrics.inception_features import WEIGHTS_FILE

    path = tmp_path / "torch" / "hub" / "checkpoints" / WEIGHTS_FILE
    path.parent.mkdir(parents=True)
    path.touch()
    areas, _ = findings()
    assert areas["weights"] == [{"area": "weights", "mark": "ok", "what": f"Inception: {path}", "remedy": ""}]


def test_a_library_that_cannot_be_imported():
    finding = doctor.check_library("torchvision", "torchvision_of_another_torch")
    assert finding.mark == "broken"
    assert finding.what == (
        "torchvision cannot be imported: ModuleNotFoundError: No module named 'torchvision_of_another_torch'"
    )
    assert finding.remedy == "pip install --force-reinstall torchvision"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Unavailable("Fetch it."), ("missing", "lions", "Fetch it.")),
        (JembenchError("It is torn."), ("broken", "lions", "It is torn.")),
        (KeyError("x"), ("broken", "lions: KeyError: 'x'", "Update or uninstall zoo-park.")),
    ],
)
def test_a_dataset_that_cannot_be_read(monkeypatch, error, expected):
    def raising():
        raise error

    monkeypatch.setattr(discovery, "load", lambda component: raising)
    component = discovery.Component("datasets", "lions", "zoo-park", "1.0", "zoo", "lions")
    assert doctor.check_dataset(component) == ("data", *expected)


def test_a_store_that_is_not_there_yet(tmp_path):
    (finding,) = doctor.check_store(tmp_path / "a" / "b")
    assert finding.mark == "ok"
    assert finding.what.startswith(f"{tmp_path / 'a' / 'b'}: made by the first run, ")
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_is_there(tmp_path):
    (finding,) = doctor.check_store(tmp_path)
    assert finding.what.startswith(f"{tmp_path}: writable, ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("below", ["", "runs"])
def test_a_store_that_is_a_file(tmp_path, below):
    (tmp_path / "file").touch()
    (finding,) = doctor.check_store(tmp_path / "file" / below)
    assert finding == ("store", "broken", f"{tmp_path / 'file'} is a file", "Choose another folder with --store.")


def test_a_store_that_cannot_be_written(tmp_path, monkeypatch):
    def refuse(dir):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    (finding,) = doctor.check_store(tmp_path / "runs")
    assert finding.mark == "broken"
    assert finding.what == f"{tmp_path} cannot be written: Permission denied"
    assert finding.remedy == "Choose a folder that you may write to with --store."


def test_a_disk_that_is_nearly_full(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda folder: shutil._ntuple_diskusage(2**40, 2**40 - 2**29, 2**29))
    (finding,) = doctor.check_store(tmp_path)
    assert (finding.mark, finding.what) == ("broken", f"{tmp_path}: writable, 0.5 GiB free")
    assert finding.remedy == "Free some space, or choose a folder on another disk with --store."
