import hashlib
import os
import shutil
import sys

import pytest

from jembench.catalog import contents, registry
from jembench.catalog.contents import content
from jembench.errors import SpecError, Unavailable
from jembench.experiment.plan import plan_fit

SETS = """
from pathlib import Path
from typing import Annotated
from jembench.catalog.options import Content, Incidental, Names

def files(root):
    return {path.name: path for path in Path(root).iterdir()}

def folder(
    *, root: Annotated[str, Content(files)], fetch: Annotated[bool, Incidental()] = False
): ...

def weighted(data, *, weights: Annotated[str, Content()] = "", width: int = 3): ...

def grown(data, *, width: int = 3): ...

def sampled(data, *, sampler: Annotated[str, Names("samplers")] = "pcd"): ...
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Factories whose options are paths, two files, and a cache folder of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sets_of_tests.py").write_text(SETS)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a").write_bytes(b"one")
    (tmp_path / "data" / "b").write_bytes(b"two")
    yield tmp_path
    sys.modules.pop("sets_of_tests", None)


def identity(spec, kind="ood_sets"):
    registry.content_of.cache_clear()
    return registry.resolve(kind, f"sets_of_tests:{spec}").identity


def both(folder):
    return {name: folder / name for name in ("a", "b")}


def test_the_content_of_one_file_is_its_sha256(here):
    assert content({"": here / "data" / "a"}) == hashlib.sha256(b"one").hexdigest()


def test_the_hash_does_not_depend_on_how_many_files_wait(here, monkeypatch):
    together = content(both(here / "data"))
    shutil.copytree(here / "data", here / "copy")
    monkeypatch.setattr(contents, "_AT_ONCE", 1)
    assert content(both(here / "copy")) == together


def test_names_and_contents_count_and_places_and_times_do_not(here):
    before = content(both(here / "data"))
    shutil.copytree("data", "copy")
    os.utime("copy/a", (1, 1))
    assert content(both(here / "copy")) == before
    (here / "copy" / "a").write_bytes(b"two")
    (here / "copy" / "b").write_bytes(b"one")
    assert content(both(here / "copy")) != before  # the same contents under each other's names


def test_what_did_not_change_is_not_read_again(here, monkeypatch):
    before = content(both(here / "data"))
    monkeypatch.setattr(contents, "digest", lambda path: pytest.fail(f"{path} was read"))
    assert content(both(here / "data")) == before


def test_of_the_same_size_and_time_it_is_read_again(here):
    path = here / "data" / "a"
    before, times = content({"": path}), path.stat()
    path.write_bytes(b"ONE")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert content({"": path}) != before


def test_a_damaged_memory_is_not_believed(here):
    before = content(both(here / "data"))
    (kept,) = (here / "cache" / "jembench" / "contents").iterdir()
    kept.write_text("damaged")
    assert content(both(here / "data")) == before


def test_a_memory_that_cannot_be_written_costs_time_alone(here):
    (here / "cache").write_text("in the way")
    assert content(both(here / "data")) == content(both(here / "data"))


def test_a_pipe_is_refused_before_it_is_opened(here):
    os.mkfifo(here / "pipe")
    with pytest.raises(OSError, match="pipe"):
        content({"": here / "pipe"})


def test_another_path_is_the_same_and_another_content_is_not(here):
    before = identity("folder:root=data")
    shutil.copytree("data", "copy")
    assert (
        identity("folder:root=./copy") == identity(f"folder:root={here}/data,fetch=true") == before
    )
    (here / "data" / "c").write_bytes(b"three")
    assert identity("folder:root=data") != before


def test_an_option_that_is_left_out_is_no_file():
    assert identity("weighted", "models")["arguments"] == {"weights": "", "width": 3}
    digest = identity("weighted:weights=data/a", "models")["arguments"]["weights"]
    assert digest == hashlib.sha256(b"one").hexdigest()


@pytest.mark.parametrize(
    ("file", "problem"),
    [
        ("nowhere.bin", "nowhere.bin cannot be read: No such file or directory"),
        (".", "cannot be read: Is a directory"),
    ],
)
def test_a_file_that_cannot_be_read_is_told(file, problem):
    with pytest.raises(SpecError) as caught:
        identity(f"weighted:weights={file}", "models")
    assert str(caught.value).startswith(f"weights of sets_of_tests:weighted is {file!r}, and ")
    assert str(caught.value).endswith(f"{problem}. Check the path.")


def test_what_an_option_names_is_what_it_holds(here):
    """Outliers of a metric are known by their files as well, and those that are got in some way by
    no path.
    """

    def metric(outliers):
        registry.content_of.cache_clear()
        return registry.resolve("metrics", f"ood:set={outliers}").identity["arguments"]["set"]

    mine = metric('"sets_of_tests:folder:root=data"')
    assert mine["arguments"] == {"root": identity("folder:root=data")["arguments"]["root"]}
    (here / "data" / "a").write_bytes(b"ONE")
    assert metric('"sets_of_tests:folder:root=data"') != mine
    assert (
        metric("svhn:root=/somewhere")
        == metric("svhn")
        == {"name": "svhn", "distribution": "jembench", "arguments": {}}
    )
    assert metric("celeba:root=/nowhere") == "celeba"  # not available: measured once it is
    assert metric("nowhere") == "nowhere"  # not installed


def test_what_an_option_names_comes_after_itself():
    """The start of the sampler, which an option of the sampler names, is the last one."""
    used = registry.resolve("models", "sets_of_tests:sampled:sampler=sgld").uses
    assert [component.name for component in used] == ["sets_of_tests:sampled", "sgld", "uniform"]


def test_an_option_that_names_a_component_counts_with_its_defaults():
    one = identity("sampled:sampler=sgld", "models")["arguments"]["sampler"]
    assert (one["name"], one["arguments"]["steps"], one["arguments"]["start"]["name"]) == (
        "sgld",
        100,
        "uniform",
    )
    assert identity("sampled:sampler=sgld:steps=100", "models") == identity(
        "sampled:sampler=sgld", "models"
    )
    assert identity("sampled:sampler=sgldd", "models")["arguments"]["sampler"] == "sgldd"


def test_missing_files_of_a_dataset_are_told_with_the_remedy():
    with pytest.raises(
        Unavailable, match=r"There is no folder .*nowhere\. Give imagefolder's root"
    ):
        _ = plan_fit("sets_of_tests:grown", "imagefolder:root=nowhere").key
