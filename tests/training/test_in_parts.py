"""Training on images that are read in parts is that on a tensor, bit for bit."""

import threading
from collections import deque

import pytest
import torch

from jembench.data.images import Images
from jembench.errors import JembenchError
from jembench.interfaces import DataSpec, Split
from jembench.sampling.starts import ClassGaussianStart

DATA = DataSpec(name="toy", shape=(1, 4, 4), num_classes=3)

SETTINGS = {
    "tensor": {},
    "few labels": {"data.labelled": 30, "data.labelled_batch": 5},
    "shared": {"data.shared": "true"},
    "classes": {"chains.sampler": '"pcd:steps=3,buffer=30,start=class-gaussian"'},
    "images": {"chains.sampler": '"pcd:steps=3,buffer=30,start=images"'},
    "augmented": {"data.pad": 1, "data.noise": 0.03},
}


@pytest.fixture(autouse=True)
def in_parts(monkeypatch):
    monkeypatch.setenv("JEMBENCH_IMAGES_GIB", "0")


def lazy(split, read=None):
    read = read or split.images.__getitem__
    rows = torch.arange(len(split.images))
    return Split(Images(read, rows, tuple(split.images.shape[1:])), split.labels)


def weights(trainer):
    return torch.cat([value.flatten() for value in trainer.weights().values()])


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_weights_are_the_same(make_trainer, toy_split, settings):
    expected = make_trainer(images=toy_split, **SETTINGS[settings])
    actual = make_trainer(images=lazy(toy_split), **SETTINGS[settings])
    assert isinstance(actual.batches.sources["marginal"][0], Images)
    for trainer in (expected, actual):
        for _ in range(20):  # two epochs and two batches
            trainer.iterate()
    assert torch.equal(weights(actual), weights(expected))
    assert actual.validate() == expected.validate()


def test_a_training_resumes_within_an_epoch(make_trainer, toy_split):
    whole = make_trainer(images=lazy(toy_split))
    for _ in range(5):
        whole.iterate()
    state = whole.state_dict()
    resumed = make_trainer(images=lazy(toy_split))
    resumed.iterate()  # it reads another batch in advance
    resumed.load_state_dict(state)
    for trainer in (whole, resumed):
        for _ in range(8):
            trainer.iterate()
    assert torch.equal(weights(resumed), weights(whole))


def test_the_next_batch_is_read_in_a_thread_and_each_image_once_an_epoch(make_trainer, toy_split):
    rows, threads = [], []

    def read(chosen):
        rows.extend(chosen.tolist())
        threads.append(threading.current_thread())
        return toy_split.images[chosen]

    trainer = make_trainer(images=lazy(toy_split, read), **{"data.shared": "true"})
    rows.clear(), threads.clear()
    for _ in range(9):
        trainer.batches.draw()
    assert len(rows) == len(set(rows)) == 81
    assert [thread is threading.main_thread() for thread in threads] == [True] + 8 * [False]


def test_a_damaged_file_stops_the_training(make_trainer, toy_split):
    def read(rows):
        if 50 in rows:
            raise JembenchError("50.png cannot be decoded as an image")
        return toy_split.images[rows]

    trainer = make_trainer(images=lazy(toy_split, read), **{"data.validation": 0})
    with pytest.raises(JembenchError, match=r"50\.png cannot be decoded"):
        deque(trainer.iterate() for _ in range(10))


def test_classes_are_read_when_chains_start_there_and_not_before(toy_split, monkeypatch):
    monkeypatch.setenv("JEMBENCH_IMAGES_GIB", "1")  # a class alone is small
    rows = []

    def read(chosen):
        rows.extend(chosen.tolist())
        return toy_split.images[chosen]

    start = ClassGaussianStart(DATA)
    start.inform(lazy(toy_split, read))
    assert rows == []
    start.draw(2, torch.tensor([1, 1]), torch.Generator())
    assert toy_split.labels[rows].tolist() == 30 * [1]
