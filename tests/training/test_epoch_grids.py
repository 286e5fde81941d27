"""Pictures of the chains after some epochs."""

import numpy as np
import pytest
import torch
from PIL import Image

from jembench.data.pixels import to_uint8
from jembench.training.fit import train

pytestmark = pytest.mark.usefixtures("pictures")


def drawn(folder):
    return sorted(int(path.stem.removeprefix("epoch-")) for path in folder.glob("epoch-*.png"))


@pytest.mark.parametrize(("epochs", "expected"), [(6, [1, 2, 5]), (1, [1])])
def test_they_are_of_few_epochs(epochs, expected, make_trainer, tmp_path):
    train(make_trainer(epochs=epochs), tmp_path)
    assert drawn(tmp_path) == expected


def test_a_picture_shows_the_first_chains_and_changes_nothing(make_trainer, tmp_path, monkeypatch):
    trainer = make_trainer(epochs=1)
    train(trainer, tmp_path / "with")
    picture = np.asarray(Image.open(tmp_path / "with" / "epoch-1.png"))
    first = to_uint8(trainer.sampler.kept().x, trainer.data.bounds)[0]
    scale = -(-32 // first.shape[-1])
    expected = first.repeat_interleave(scale, 1).repeat_interleave(scale, 2).numpy()
    shown = np.atleast_3d(picture)[2 : 2 + expected.shape[1], 2 : 2 + expected.shape[2]]
    assert np.array_equal(shown.transpose(2, 0, 1)[: len(expected)], expected)
    monkeypatch.setattr("jembench.training.epoch_grids.due", lambda *_: None)
    without = make_trainer(epochs=1)
    train(without, tmp_path / "without")
    assert drawn(tmp_path / "without") == []
    assert torch.equal(without.sampler.kept().x, trainer.sampler.kept().x)


def test_a_classifier_has_no_chains_to_draw(make_trainer, tmp_path, toy_models):
    train(make_trainer(toy_models["classifier"], epochs=1), tmp_path)
    assert drawn(tmp_path) == []
