import datetime
import importlib.metadata
import json
import subprocess
import sys

import pytest
import torch

from jembench.catalog import discovery
from jembench.running import provenance


@pytest.fixture(autouse=True)
def fresh():
    provenance._of_process.cache_clear()
    yield
    provenance._of_process.cache_clear()


@pytest.mark.parametrize(
    ("first", "name"), [("/bin/jembench", "jembench"), ("/x/jembench/__main__.py", "jembench")]
)
def test_the_command_is_as_the_user_typed_it_quoted_for_a_shell(first, name):
    code = (
        f"import sys; sys.argv[0] = {first!r}; from jembench.running.provenance import COMMAND; "
        "print(COMMAND)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, "hybrid", "My JEM=jem"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout == f"{name} hybrid 'My JEM=jem'\n"


def test_what_is_recorded_is_json_and_complete():
    component = discovery.find("datasets", "digits")
    record = provenance.collect("cpu", [component, component, discovery.find("metrics", "ece")])
    assert json.loads(json.dumps(record)) == record
    assert record["command"] == provenance.COMMAND
    assert record["plugins"] == sorted([str(component), str(discovery.find("metrics", "ece"))])
    assert record["threads"] == torch.get_num_threads()
    assert record["hardware"]["device"] == "cpu"
    assert record["hardware"]["cores"] >= 1
    assert record["hardware"]["processor"]
    assert "gpu" not in record["hardware"]
    assert datetime.datetime.fromisoformat(record["time"]).tzinfo is not None


def test_the_version_of_every_package_that_jembench_needs(monkeypatch):
    packages = provenance.collect("cpu", [])["packages"]
    assert packages["jembench"] == importlib.metadata.version("jembench")
    assert packages["torch"] == importlib.metadata.version("torch")
    assert {
        "numpy",
        "scikit-learn",
        "torch-fidelity",
        "torchvision",
        "safetensors",
    } <= packages.keys()
    assert "pytest" not in packages  # needed for its development alone


def test_a_gpu_is_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"the one at {device}")
    hardware = provenance.collect("cuda:1", [])["hardware"]
    assert (hardware["gpu"], hardware["cuda"]) == ("the one at cuda:1", torch.version.cuda)


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A source tree of jembench with one commit; a function that runs git in it."""
    module = tmp_path / "jembench" / "running" / "provenance.py"
    module.parent.mkdir(parents=True)
    module.write_text("")
    monkeypatch.setattr(provenance, "__file__", str(module))

    def git(*arguments):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        command = ["git", "-C", str(tmp_path), *identity, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    return git


def commit():
    return provenance.collect("cpu", [])["commit"]


def test_the_commit_of_a_source_tree_and_that_it_was_changed(source, tmp_path):
    source("init")
    source("add", ".")
    source("commit", "-m", "all")
    assert commit() == source("rev-parse", "--short=12", "HEAD")
    provenance._of_process.cache_clear()
    (tmp_path / "jembench" / "running" / "provenance.py").write_text("# changed")
    assert commit().endswith("-dirty")


def test_what_is_no_source_tree_has_no_commit(source):
    assert commit() == ""
