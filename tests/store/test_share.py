import dataclasses
import json
import random
import shutil
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from jembench.errors import DamagedError, SpecError
from jembench.store import manifest, records, share, tensors
from jembench.store.store import Store
from jembench.store.walk import verify


@pytest.fixture(scope="module")
def built(whole, tmp_path_factory):
    folder = tmp_path_factory.mktemp("built") / "bundle"
    share.build(Store(whole), key(Store(whole)), folder)
    (folder / "README.md").write_text("A card")
    manifest.write(folder)
    return folder


@pytest.fixture
def shared(built, tmp_path):
    return shutil.copytree(built, tmp_path / "shared")


def key(store, model="jem", seed=0):
    return next(fit for fit, *_ in store.trained() if (fit.model, fit.seed) == (model, seed))


def names(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def zipped(folder, path):
    share.write_zip(folder, path)
    return path


def unpack(source, tmp_path):
    folder = tmp_path / "unpacked"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    share.unpack(source, folder)
    return folder


def manifest_of(folder, **changed):
    """Write the manifest anew, as anybody can, with entries changed or added."""
    manifest.write(folder)
    files = json.loads((folder / "manifest.json").read_text())["files"]
    records.write(folder / "manifest.json", {"files": {**files, **changed}})


def test_a_bundle_is_a_store_of_one_fit(whole, shared):
    of_fit = [path.name for path in Store(whole).fit_folder(key(Store(whole))).iterdir()]
    home = "fits/jem-digits-digits-s0-jem000/"
    assert {name for name in names(shared) if name.startswith("fits/")} == {
        home + name for name in of_fit if not name.startswith("checkpoint")
    }
    assert {finding.status for finding in verify(Store(shared))} == {"ok"}
    assert [cell.fit.id for cell in Store(shared).cells()] == ["jem000"] * 4
    assert [record.key for record in Store(shared).trained()] == [key(Store(whole))]


def test_results_that_failed_or_are_unfinished_are_left_out(whole, tmp_path):
    store = Store(shutil.copytree(whole, tmp_path / "store"))
    failed, partial, *_ = [cell for cell in store.cells() if cell.fit.id == "jem000"]
    for cell, change in (
        (failed, {"status": "failed", "values": {}}),
        (partial, {"details": {"partial": "half"}}),
    ):
        changed = dataclasses.replace(cell, outcome=dataclasses.replace(cell.outcome, **change))
        store.write_cell(changed, store.read_arrays(cell))
    _, cells = share.build(store, key(store), tmp_path / "bundle")
    assert {failed.id, partial.id}.isdisjoint(cell.id for cell in cells)
    assert len(cells) == len(list((tmp_path / "bundle" / "cells").iterdir())) == 2
    assert {finding.status for finding in verify(Store(tmp_path / "bundle"))} == {"ok"}


def test_without_chains_the_rest_is_whole(whole, tmp_path):
    store = Store(shutil.copytree(whole, tmp_path / "store"))
    home = store.fit_folder(key(store))
    record = store.read_fit(key(store))
    tensors.write(
        home / "sampler.safetensors",
        {"images": tensors.read(home / "buffer-5.safetensors", "")[0]["images"]},
        {},
    )
    files = {
        **record.files,
        "sampler.safetensors": tensors.read_seal(home / "sampler.safetensors").digest,
    }
    store.write_fit(record._replace(files=files))
    record, _ = share.build(store, key(store), tmp_path / "bundle", chains=False)
    assert record.provenance["chains"] == "left out"
    assert set(record.files) == {"model.safetensors", "sampler.safetensors", "history.csv"}
    assert {finding.status for finding in verify(Store(tmp_path / "bundle"))} == {"ok"}
    assert Store(tmp_path / "bundle").is_trained(key(store))
    assert store.read_fit(key(store)).files == files


def test_what_is_damaged_is_not_shared(whole, tmp_path):
    store = Store(shutil.copytree(whole, tmp_path / "store"))
    path = store.fit_folder(key(store)) / "history.csv"
    path.write_text(path.read_text()[:-5])
    with pytest.raises(
        DamagedError, match=r"s0-jem000 in .* cannot be shared: .*history\.csv is not the file"
    ):
        share.build(store, key(store), tmp_path / "bundle")


def test_a_model_arrives_as_it_was_shared(shared, tmp_path):
    (shared / "notes.txt").write_text("not in the manifest")
    by_others = Path(shutil.make_archive(tmp_path / "other", "zip", shared))
    for source in (shared, zipped(shared, tmp_path / "model.zip"), by_others):
        unpacked = unpack(source, tmp_path)
        assert names(unpacked) == names(shared) - {"notes.txt"}
        assert all(
            (unpacked / name).read_bytes() == (shared / name).read_bytes()
            for name in names(unpacked)
        )


HOME = "fits/jem-digits-digits-s0-jem000"
MODEL = f"{HOME}/model.safetensors"


def cut(shared):
    content = (shared / MODEL).read_bytes()
    (shared / MODEL).write_bytes(content[:-10])


def exchanged(shared):
    """Another model, whose digest the manifest has."""
    tensors.write(shared / MODEL, {}, {})
    manifest_of(shared)


def of_another_fit(shared):
    path = next(shared.glob("cells/ece-*"))
    record = json.loads(path.read_text())
    record.pop("digest")
    record["fit"]["id"] = "other"
    records.write(path, record)
    manifest_of(shared)


def no_weights(shared):
    (shared / HOME / "sampler.safetensors").unlink()
    manifest_of(shared)


def two_fits(shared):
    shutil.copytree(shared / HOME, shared / "fits" / "other-1")
    manifest_of(shared)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (cut, "model.safetensors was cut short, edited or exchanged"),
        (lambda shared: (shared / "README.md").unlink(), "README.md is missing"),
        (
            lambda shared: (shared / "manifest.json").write_text("{"),
            "manifest.json is not valid JSON",
        ),
        (exchanged, "model.safetensors is not the file that the training left"),
        (of_another_fit, "is a result of another model"),
        (no_weights, "It does not hold exactly one trained model"),
        (two_fits, "It does not hold exactly one trained model"),
    ],
)
def test_what_is_not_as_it_was_shared_is_refused(shared, tmp_path, damage, reason):
    damage(shared)
    for source in (shared, Path(shutil.make_archive(tmp_path / "model", "zip", shared))):
        with pytest.raises(DamagedError) as error:
            unpack(source, tmp_path)
        assert str(error.value).startswith(f"{source} is not what was shared: ")
        assert reason in str(error.value)
        assert str(tmp_path / "unpacked") not in str(error.value)


def test_a_file_that_is_missing_beside_the_manifest_is_seen_by_verify(shared):
    next(shared.glob("cells/nll-*")).unlink()
    next(shared.glob("arrays/nll-*")).unlink()
    (finding,) = [finding for finding in verify(Store(shared)) if finding.status != "ok"]
    assert (finding.file, finding.status) == ("manifest.json", "damaged")


@pytest.mark.parametrize(
    "name",
    [
        "../README.md",
        "/etc/hostname",
        "fits/../../README.md",
        f"{HOME}/model.pkl",
        f"{HOME}\\model.safetensors",
        "cells/a/b.json",
        "cells/" + "a" * 300 + ".json",
        "cells/a\n.json",
        "",
    ],
)
def test_names_of_other_files_are_refused(shared, tmp_path, name):
    manifest_of(shared, **{name: "0" * 64})
    with pytest.raises(DamagedError, match="which can be no file of a trained model"):
        unpack(shared, tmp_path)
    assert names(tmp_path / "unpacked") == {"manifest.json"}


def test_links_that_lead_out_are_refused(shared, tmp_path):
    outside = tmp_path / "outside"
    shutil.move(shared / "cells", outside)
    (shared / "cells").symlink_to(outside)
    with pytest.raises(DamagedError, match="is a link that leads out of the folder"):
        unpack(shared, tmp_path)


def test_a_shared_model_that_is_too_large_is_refused(shared, tmp_path):
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("manifest.json", "{}")
        archive.filelist[0].file_size = 3 * 2**30  # what its directory says
    with pytest.raises(SpecError, match="unpacked, takes 3 GiB, and the limit is 1"):
        unpack(path, tmp_path)
    with (shared / MODEL).open("ab") as stream:
        stream.truncate(2**40)  # a sparse file
    with pytest.raises(SpecError, match=r"model.safetensors takes 1,024 GiB"):
        unpack(shared, tmp_path)


def bomb(shared, path, method=zipfile.ZIP_DEFLATED):
    """An archive of 33 KB more than the model, with 32 MiB of zeros."""
    (shared / "README.md").write_bytes(bytes(2**25))
    manifest_of(shared)
    with zipfile.ZipFile(path, "w", method) as archive:
        for name in names(shared):
            archive.write(shared / name, name)
    return path


def test_no_file_is_held_in_memory(shared, tmp_path):
    path = bomb(shared, tmp_path / "bomb.zip")
    tracemalloc.start()
    try:
        assert (unpack(path, tmp_path) / "README.md").stat().st_size == 2**25
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_methods_that_zipfile_unpacks_at_once_are_refused(shared, tmp_path, method):
    with pytest.raises(SpecError, match="is compressed by method"):
        unpack(bomb(shared, tmp_path / "bomb.zip", method), tmp_path)


@pytest.mark.parametrize("name", ["README.md", "cells", "manifest.json"])
def test_a_link_to_itself_is_refused(shared, tmp_path, name):
    path = shared / name
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    path.symlink_to(path.name)
    with pytest.raises(DamagedError, match="cannot be read"):
        unpack(shared, tmp_path)


def test_what_is_no_bundle_is_refused_with_a_remedy(whole, tmp_path):
    with pytest.raises(SpecError, match=r"manifest\.json is missing.*jembench store merge"):
        unpack(whole, tmp_path)
    with pytest.raises(SpecError, match="There is no nowhere"):
        unpack(whole.with_name("x").relative_to(whole.parent).with_name("nowhere"), tmp_path)


def test_an_archive_with_any_wrong_byte_gives_the_same_files_or_none(shared, tmp_path):
    whole = zipped(shared, tmp_path / "model.zip").read_bytes()
    rng = random.Random(0)
    structure = [n for n in range(len(whole)) if whole[n : n + 2] == b"PK"]
    places = [place + rng.randrange(46) for place in rng.sample(structure, 12)] + rng.sample(
        range(len(whole)), 8
    )
    for place in places:
        changed = bytearray(whole)
        changed[min(place, len(whole) - 1)] ^= 1 << rng.randrange(8)
        (tmp_path / "model.zip").write_bytes(changed)
        try:
            unpacked = unpack(tmp_path / "model.zip", tmp_path)
        except (DamagedError, SpecError):
            continue
        assert all(
            (unpacked / name).read_bytes() == (shared / name).read_bytes() for name in names(shared)
        )
