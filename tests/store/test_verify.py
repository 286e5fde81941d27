import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from small_store import flip

from jembench.data import grid
from jembench.errors import Fallback, SpecError, StoreError
from jembench.store import fits, pictures
from jembench.store.store import Store
from jembench.store.walk import verify


@pytest.fixture
def root(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "runs")


def told(root):
    return {finding.file: finding for finding in verify(Store(root)) if finding.status != "ok"}


def test_a_store_that_is_whole(root):
    (root / "works").mkdir()
    found = verify(Store(root))
    assert {finding.status for finding in found} == {"ok"}
    files = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    assert {finding.file for finding in found} == files


def test_one_flipped_bit_in_any_file_is_found(root):
    for path in [path for path in root.rglob("*") if path.is_file() and path.stat().st_size]:
        whole = path.read_bytes()
        flip(path)
        (finding,) = [each for each in told(root).values() if each.status == "damaged"]
        assert finding.file == str(path.relative_to(root))
        path.write_bytes(whole)


@pytest.mark.parametrize(
    ("removed", "missing"),
    [
        ("arrays/ece-*", 4),
        ("fits/*/model.safetensors", 4),
        ("fits/*/history.csv", 4),
        ("fits/*/buffer-5.*", 4),
    ],
)
def test_what_is_gone_is_missed(root, removed, missing):
    for path in root.glob(removed):
        path.unlink()
    assert sum(finding.status == "damaged" for finding in told(root).values()) == missing


def test_files_that_are_whole_and_in_the_place_of_others_are_found(root):
    first, second = sorted(root.glob("fits/*/model.safetensors"))[:2]
    shutil.copy(first, second)
    one, other = sorted(root.glob("arrays/accuracy-*"))[:2]
    shutil.copy(one, other)
    found = told(root)
    assert (
        found[str(second.relative_to(root))].reason
        == f"{second} is not the file that the training left."
    )
    assert "does not match the digest in the cell" in found[str(other.relative_to(root))].reason
    assert sum(finding.status == "damaged" for finding in found.values()) == 2
    # the readings of the second
    assert sum(finding.status == "stray" for finding in found.values()) == 1


SEALED = ["checkpoint-0.safetensors", "buffer-5.safetensors", "samples.png"]


@pytest.mark.parametrize("name", SEALED)
def test_a_sealed_file_of_another_fit_is_found(root, name):
    first, second = sorted(root.glob(f"fits/jem-*/{name}"))
    shutil.copy(first, second)
    # also while the training goes on, when no record names the file
    (second.parent / fits.RECORD).unlink()
    assert told(root)[str(second.relative_to(root))].status == "damaged"


@pytest.mark.parametrize("folder", ["readings", "features"])
def test_readings_and_features_in_the_place_of_others_are_found(root, folder):
    first, second = sorted(root.glob(f"{folder}/[0-9o]*/*.safetensors"))[:2]
    shutil.copy(first, second)
    reason = told(root)[str(second.relative_to(root))].reason
    assert "it was written under another name or in another folder" in reason


def test_a_picture_of_former_weights_or_without_a_seal_is_found(root):
    path = next(root.glob("fits/jem-*/samples.png"))
    whole = path.read_bytes()
    flip(path)
    assert told(root)[str(path.relative_to(root))].status == "damaged"
    path.write_bytes(whole.replace(b"tEXt", b"tEXx"))
    assert "of another model than its folder's" in told(root)[str(path.relative_to(root))].reason
    path.write_bytes(whole)
    assert not told(root)
    text = pictures.seal_for(path.parent)
    other = text[:-1] + ("0" if text[-1] != "0" else "1")
    images, places = np.zeros((1, 1, 8, 8), np.uint8), np.zeros((1, 1), np.int64)
    grid.write_png(path, images, places, texts={pictures.KEY: other})
    assert told(root)[str(path.relative_to(root))].status == "damaged"


def test_what_belongs_to_nothing_is_a_stray(root):
    for name in (
        "cells/notes.txt",
        "arrays/old-0000000000.npz",
        "fits/notes",
        "readings/notes",
        "notes.txt",
    ):
        (root / name).write_text("mine")
    next(root.glob("cells/ece-*")).unlink()
    shutil.rmtree(next(root.glob("fits/jem-*")))
    found = told(root)
    assert {finding.status for finding in found.values()} == {"stray"}
    assert len(found) == 5 + 2


def test_what_is_no_file_is_found_at_once(root):
    for path in (
        next(root.glob(pattern)) for pattern in ("cells/ece-*", "arrays/nll-*", "fits/*/model*")
    ):
        path.unlink()
        os.mkfifo(path)
    (root / "fits" / "loop").symlink_to("..")
    (root / "cells" / "loop.json").symlink_to("loop.json")
    assert sum(finding.status == "damaged" for finding in told(root).values()) == 4


def test_a_record_that_is_a_link_to_itself_is_damaged_and_its_fit_not_trained(root):
    path = next(root.glob("fits/jem-*/fit.json"))
    key = fits.read(path.parent).key
    path.unlink()
    path.symlink_to(path.name)
    assert told(root)[str(path.relative_to(root))].reason.startswith(
        f"Cannot read {path}: Too many levels of symbolic"
    )
    with pytest.warns(Fallback, match="Cannot read"):
        assert not Store(root).is_trained(key)


def test_a_store_that_is_not_there_is_no_success(tmp_path):
    with pytest.raises(SpecError, match=r"There is no store .*none. Name the folder of a store"):
        verify(Store(tmp_path / "none"))
    (tmp_path / "runs").mkdir()
    assert verify(Store(tmp_path / "runs")) == []
    (tmp_path / "runs" / "cells").write_text("")
    with pytest.raises(StoreError, match="Not a directory"):
        verify(Store(tmp_path / "runs"))


def test_it_writes_nothing_and_imports_no_torch(root):
    before = {
        path: (path.stat().st_mtime_ns, path.stat().st_mode) for path in [root, *root.rglob("*")]
    }
    code = (
        "import sys; from jembench.cli.main import main; code = main(['store', 'verify', "
        "'--store', sys.argv[1]]); assert code == 0 and not {'torch', 'numpy', 'safetensors'} & "
        "set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(root)], check=True)
    assert {
        path: (path.stat().st_mtime_ns, path.stat().st_mode) for path in [root, *root.rglob("*")]
    } == before
