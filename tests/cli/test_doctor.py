import json
import shutil

import pytest

from jembench.cli import doctor


@pytest.fixture
def findings(jembench, tmp_path):
    """Run the doctor: what it says, by area, and its exit code."""

    def call(*arguments):
        done = jembench("doctor", "--store", tmp_path / "runs", "--format", "json", *arguments)
        areas = {}
        for finding in json.loads(done.out):
            areas.setdefault(finding["area"], []).append(finding)
        return areas, done.code

    return call


def test_a_bare_machine_is_healthy_and_says_what_is_missing(findings):
    areas, code = findings()
    assert code == 0
    assert list(areas) == ["versions", "devices", "store"]
    assert {finding["mark"] for finding in areas["versions"]} == {"ok"}
    everything = [finding for area in areas.values() for finding in area]
    assert all(finding["remedy"] for finding in everything if finding["mark"] != "ok")


def test_a_library_that_cannot_be_imported():
    finding = doctor.check_library("torchvision", "torchvision_of_another_torch")
    assert finding.mark == "broken"
    assert finding.what == (
        "torchvision cannot be imported: ModuleNotFoundError: No module named "
        "'torchvision_of_another_torch'"
    )
    assert finding.remedy == "pip install --force-reinstall torchvision"


def test_a_store_that_is_not_there_yet(tmp_path):
    (finding,) = doctor.check_store(tmp_path / "a" / "b")
    assert finding.mark == "ok"
    assert finding.what.startswith(f"{tmp_path / 'a' / 'b'}: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("below", ["", "runs"])
def test_a_store_that_cannot_be_written(tmp_path, below):
    (tmp_path / "file").touch()
    (finding,) = doctor.check_store(tmp_path / "file" / below)
    what = f"{tmp_path / 'file'} cannot be written: Not a directory"
    assert finding == ("store", "broken", what, "Choose another folder with --store.")


def test_a_disk_that_is_nearly_full(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "shutil.disk_usage", lambda folder: shutil._ntuple_diskusage(2**40, 2**40 - 2**29, 2**29)
    )
    (finding,) = doctor.check_store(tmp_path)
    assert (finding.mark, finding.what) == ("broken", f"{tmp_path}: 0.5 GiB free")
    assert finding.remedy == "Free some space, or choose a folder on another disk with --store."
