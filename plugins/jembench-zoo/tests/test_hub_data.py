"""``hf`` datasets: what files of the library datasets become, and what is refused."""

import importlib.util
import io

import numpy as np
import pytest
import torch
from PIL import Image

from jembench.catalog import registry
from jembench.data.images import Images
from jembench.errors import JembenchError, Remark, SpecError, Unavailable
from jembench_zoo.data import hf

if importlib.util.find_spec("datasets") is None:
    pytest.skip("datasets is not installed", allow_module_level=True)

import datasets

RANDOM = np.random.default_rng(0)
PIXELS = RANDOM.integers(0, 256, (12, 6, 5, 3), dtype=np.uint8)
LABELS = np.arange(12) % 3
NAMES = ["eel", "cat", "dog"]  # not in the order of the alphabet
TYPES = {"photo": datasets.Image(), "kind": datasets.ClassLabel(names=NAMES)}


@pytest.fixture(autouse=True)
def caches(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "prepared")
    datasets.disable_progress_bars()


def encoded(picture, kind="PNG"):
    stream = io.BytesIO()
    picture.save(stream, kind)
    return stream.getvalue()


def table(rows=slice(None), labels=LABELS, pictures=None, **types):
    pictures = pictures or [Image.fromarray(pixels) for pixels in PIXELS]
    columns = {"photo": [{"bytes": encoded(picture), "path": None} for picture in pictures[rows]]}
    columns["kind"] = labels[rows].tolist()
    features = datasets.Features({**TYPES, **types})
    return datasets.Dataset.from_dict(columns, features=features)


def saved(folder, **parts):
    datasets.DatasetDict(parts).save_to_disk(str(folder))
    return str(folder)


@pytest.fixture
def both(tmp_path):
    """A folder of save_to_disk, with train and test."""
    return saved(tmp_path / "both", train=table(slice(0, 8)), test=table(slice(8, 12)))


@pytest.fixture
def parquet(tmp_path):
    """The same as a folder of parquet files."""
    folder = tmp_path / "parquet" / "data"
    folder.mkdir(parents=True)
    table(slice(0, 8)).to_parquet(str(folder / "train-00000-of-00001.parquet"))
    table(slice(8, 12)).to_parquet(str(folder / "test-00000-of-00001.parquet"))
    return str(folder.parent)


@pytest.mark.parametrize("limit", ["0", "1"])
@pytest.mark.parametrize("source", ["both", "parquet"])
def test_pixels_and_names_whether_in_memory_or_not(request, monkeypatch, source, limit):
    monkeypatch.setenv("JEMBENCH_IMAGES_GIB", limit)
    dataset = hf(source=request.getfixturevalue(source))
    assert (dataset.spec.name, dataset.spec.shape) == (source, (3, 6, 5))
    assert dataset.spec.class_names == tuple(NAMES)
    assert (dataset.train_size, dataset.test_size) == (8, 4)
    expected = torch.tensor(PIXELS).permute(0, 3, 1, 2)
    for name, rows in (("train", slice(0, 8)), ("test", slice(8, 12))):
        images, labels = dataset.split(name)
        assert isinstance(images, Images) == (limit == "0")
        assert torch.equal(images[:], expected[rows])
        assert labels.tolist() == LABELS[rows].tolist()


def test_only_images_that_are_asked_for_are_read(both, monkeypatch):
    monkeypatch.setenv("JEMBENCH_IMAGES_GIB", "0")
    rows = []
    original = datasets.Dataset.__getitem__

    def read(self, key):
        if self.column_names == ["photo"] and isinstance(key, list):
            rows.extend(key)
        return original(self, key)

    monkeypatch.setattr(datasets.Dataset, "__getitem__", read)
    images = hf(source=both).split("train").images
    assert rows == [0]  # the first gives the form
    images[torch.tensor([5, 2])]
    assert rows[1:] == [5, 2]


def test_a_folder_with_the_name_of_a_format(parquet, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert hf(source="parquet").train_size == 8


def test_rows_are_the_identity_in_files_of_either_kind(both, parquet, tmp_path):
    def identity(folder):
        return registry.resolve("datasets", f"hf:source={folder}").identity

    parts = {"train": table(slice(0, 8)), "test": table(slice(8, 12))}
    again = saved(tmp_path / "again", **parts)
    assert identity(again) == identity(both) == identity(parquet)

    parts["test"] = table(slice(8, 12), labels=LABELS[::-1])
    assert identity(saved(tmp_path / "other", **parts)) != identity(both)
    kinds = datasets.ClassLabel(names=["a", "b", "c"])
    parts["test"] = table(slice(8, 12), kind=kinds)
    assert identity(saved(tmp_path / "named", **parts)) != identity(both)


def test_a_single_file_is_split(tmp_path):
    table().to_parquet(str(tmp_path / "pets.parquet"))
    dataset = hf(source=str(tmp_path / "pets.parquet"), split=0.75)
    assert (dataset.spec.name, dataset.train_size, dataset.test_size) == ("pets", 9, 3)
    assert sorted(dataset.split("test").labels.tolist()) == [0, 1, 2]


def test_validation_and_hidden_labels_are_noted(tmp_path):
    hidden = table(slice(0, 4), labels=np.full(12, -1))
    parts = {"train": table(), "validation": table(slice(4, 6)), "extra": table(slice(0, 1))}
    folder = saved(tmp_path / "a", **parts)
    with pytest.warns(Remark) as remarks:
        assert hf(source=folder).test_size == 2
    assert [str(remark.message) for remark in remarks] == [
        "The test images of a are its part validation, since it has no part test.",
        "Not read of a: extra.",
    ]
    with (
        pytest.warns(Remark, match=r"since the labels of test are hidden \(-1\)"),
        pytest.warns(Remark, match="Not read of b: extra\\."),
    ):
        assert hf(source=saved(tmp_path / "b", **parts, test=hidden)).test_size == 2


def test_test_images_alone(tmp_path):
    dataset = hf(source=saved(tmp_path / "alone", test=table()))
    assert (dataset.train_size, dataset.test_size) == (0, 12)
    assert len(dataset.split("train").images) == 0


def test_other_columns_are_named(tmp_path):
    import pyarrow
    from pyarrow import parquet

    contents = [encoded(Image.fromarray(pixels)) for pixels in PIXELS]
    words = [NAMES[label] for label in LABELS]
    file = tmp_path / "plain.parquet"
    parquet.write_table(pyarrow.table({"pixels": contents, "what": words}), file)
    message = r"no column of the type Image. Its columns are: pixels \(binary\), what \(string\)"
    with pytest.raises(SpecError, match=message):
        hf(source=str(file))
    with pytest.raises(SpecError, match="Write label=COLUMN, or label=none"):
        hf(source=str(file), image="pixels")
    with pytest.raises(SpecError, match="has no column y"):
        hf(source=str(file), image="pixels", label="y")
    assert hf(source=str(file), image="pixels", label="none").spec.num_classes == 0
    dataset = hf(source=str(file), image="pixels", label="what")
    assert dataset.spec.class_names == ("cat", "dog", "eel")
    with pytest.warns(Remark, match="cat, dog, eel"):
        images, _ = dataset.split("train")
    assert images.shape == (10, 3, 6, 5)


def test_two_label_columns_are_named(tmp_path):
    twice = table().add_column("coarse", LABELS.tolist())
    twice = twice.cast_column("coarse", datasets.ClassLabel(names=NAMES))
    source = saved(tmp_path / "two", train=twice)
    with pytest.raises(SpecError, match="2 columns of the type ClassLabel"):
        hf(source=source)
    assert hf(source=source, label="coarse").spec.num_classes == 3


@pytest.mark.filterwarnings("ignore:12 of 12 images have:jembench.errors.Remark")
@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "I;16"])
def test_modes_are_read_as_imagefolder_reads_them(tmp_path, mode):
    from jembench.data.folders import imagefolder

    pictures = []
    for pixels in PIXELS:
        if mode == "I;16":
            picture = Image.fromarray(pixels[..., 0].astype(np.uint16) * 257)
        else:
            picture = Image.fromarray(pixels)
            picture.putalpha(Image.fromarray(pixels[..., 0]))
            picture = (
                picture.convert(mode) if mode == "RGBA" else picture.convert("RGB").convert(mode)
            )
        pictures.append(picture)
    for number, picture in enumerate(pictures):
        folder = tmp_path / "folder" / "test" / f"{LABELS[number]}"
        folder.mkdir(parents=True, exist_ok=True)
        picture.save(folder / f"{number:02}.png")
    order = np.argsort(LABELS, kind="stable")
    source = saved(tmp_path / "saved", test=table(pictures=pictures))

    def read(dataset):
        try:
            return dataset().split("test").images
        except JembenchError as error:
            return str(error).partition(" has ")[2]

    expected = read(lambda: imagefolder(root=str(tmp_path / "folder")))
    images = read(lambda: hf(source=source))
    if isinstance(expected, str):
        assert images == expected != ""
    else:
        assert torch.equal(images[torch.tensor(order)], expected)


def test_other_sizes_and_damage_are_named(tmp_path):
    pictures = [Image.fromarray(pixels) for pixels in PIXELS]
    pictures[7] = pictures[7].resize((9, 8))
    source = saved(tmp_path / "sizes", test=table(pictures=pictures))
    with pytest.raises(JembenchError, match=r"Image 7 of test of sizes has 9x8 pixels .*=32"):
        hf(source=source).split("test")
    assert hf(source=source, size=4).split("test").images.shape == (12, 3, 4, 4)

    rows = [{"bytes": encoded(picture), "path": None} for picture in pictures[:2]]
    rows[1]["bytes"] = rows[1]["bytes"][:50]
    data = {"photo": rows, "kind": [0, 1]}
    damaged = datasets.Dataset.from_dict(data, features=datasets.Features(TYPES))
    with pytest.raises(JembenchError, match="Image 1 of test of d cannot be decoded"):
        hf(source=saved(tmp_path / "d", test=damaged)).split("test")
    (tmp_path / "cut.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(JembenchError, match=r"cut.parquet cannot be read"):
        hf(source=str(tmp_path / "cut.parquet"))


def test_a_name_in_the_cache_of_the_hub(tmp_path, parquet, monkeypatch):
    import huggingface_hub

    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("a connection"))
    cache = tmp_path / "hub"
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(cache))
    command = "run `hf download --repo-type dataset me/pets --revision v1`"
    with pytest.raises(Unavailable, match=command):
        hf(source="me/pets", revision="v1")
    with pytest.raises(Unavailable, match="run `hf download --repo-type dataset me/pets`"):
        hf(source="me/pets")

    repository = cache / "datasets--me--pets"
    snapshot = repository / "snapshots" / ("0" * 40)
    snapshot.parent.mkdir(parents=True)
    (tmp_path / "parquet").rename(snapshot)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40)
    dataset = hf(source="me/pets")
    assert (dataset.spec.name, dataset.train_size) == ("pets", 8)
    assert registry.resolve("datasets", "hf:source=me/pets").content


def test_no_code_of_a_data_set_is_run(tmp_path):
    (tmp_path / "scripted").mkdir()
    script = "import datasets\nraise SystemExit('run')\n"
    (tmp_path / "scripted" / "scripted.py").write_text(script)
    with pytest.raises(Unavailable, match="holds no parquet or Arrow files"):
        hf(source=str(tmp_path / "scripted"))
    table().to_parquet(str(tmp_path / "scripted" / "train.parquet"))
    with pytest.raises(JembenchError, match="scripts are no longer supported"):
        hf(source=str(tmp_path / "scripted"))


def test_options_without_effect(both):
    with pytest.raises(SpecError, match="split and seed have no effect"):
        hf(source=both, seed=1)
    with pytest.raises(SpecError, match="config has no effect"):
        hf(source=both, config="a")
