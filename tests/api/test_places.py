"""Fits and results are found by the content of the data, not by the path that named it."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import jembench as jb
from jembench.errors import SpecError

TINY = Path(__file__).parents[1] / "zoo" / "tiny.toml"
MODELS = ["baseline:net=mlp-8", "baseline:net=mlp-4"]


pytestmark = pytest.mark.filterwarnings("ignore:.*images of 1x4x4:jembench.errors.Remark")


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    root = tmp_path_factory.mktemp("data") / "photos"
    drawn = np.random.default_rng(0)
    for part, number in (("train", 12), ("test", 6)):
        for label in ("cat", "dog", "owl"):
            folder = root / part / label
            folder.mkdir(parents=True)
            for place in range(number):
                pixels = drawn.integers(0, 256, (4, 4), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{place}.png")
    return root


def test_a_dataset_is_found_by_another_path_to_its_files(photos, tmp_path, monkeypatch):
    work = photos.parent / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    relative, absolute = "imagefolder:root=../photos,grey=true", f"imagefolder:root={photos}"
    absolute += ",grey=true"
    store = tmp_path / "runs"
    how = {"metrics": "accuracy", "recipe": str(TINY), "progress": False}
    jb.run("hybrid", models=MODELS, datasets=relative, store=store, **how)

    monkeypatch.chdir(tmp_path)  # the path in the store leads nowhere from here
    fit = jb.load(MODELS[0], dataset=absolute, store=store)
    assert fit.data.shape == (1, 4, 4)
    assert len(jb.open_store(store).results(dataset=absolute)) == 2
    compared = jb.compare(*MODELS, dataset=absolute, store=store, resamples=100)
    assert len(compared.records) == 1
    experiment = tmp_path / "mine.toml"
    experiment.write_text(
        f'include = ["hybrid"]\ntitle = "Mine"\ndatasets = ["{absolute}"]\nmetrics = ["accuracy"]\n'
        f'models = ["{MODELS[0]}"]\nrecipe = "{TINY}"\n'
    )
    assert len(jb.open_store(store).results(str(experiment))) == 1

    (photos / "test" / "cat" / "0.png").unlink()  # another dataset now
    with pytest.raises(SpecError, match="no trained"):
        jb.load(MODELS[0], dataset=absolute, store=store)
