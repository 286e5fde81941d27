"""The buffers of the last epochs: when they are kept, what they hold, and what is made of five."""

import numpy as np
import pytest
import torch
from fits import rig

from jembench.data.pixels import to_uint8
from jembench.errors import CheckpointError, Unavailable
from jembench.interfaces import Samples
from jembench.store import checkpoint
from jembench.training import snapshots
from jembench.training.fit import train

LONG = {"epochs": 6}  # of 9 iterations


def ages(folder):
    """The iteration that each buffer was kept at, by its number."""
    paths = sorted(folder.glob("buffer-*.safetensors"))
    return {int(path.stem.removeprefix("buffer-")): checkpoint.age_of(path) for path in paths}


def watching(trainer, seen):
    """A report that remembers the chains after each window, by the remedies in force and the
    iteration.
    """

    def report(event):
        if event.kind != "window":
            return
        chains = trainer.chains.sampler.kept().x
        if chains.isfinite().all():  # not those of a window in which training diverged
            seen[trainer.adjustment.seeds, event.done] = to_uint8(chains, trainer.data.bounds)

    return report


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"epochs": 6}, {1: 20, 2: 28, 3: 36, 4: 48, 5: 54}),
        ({"epochs": 5}, {1: 12, 2: 20, 3: 28, 4: 36, 5: 45}),
        ({"epochs": 4}, {2: 12, 3: 20, 4: 28, 5: 36}),
        ({"epochs": 1}, {5: 9}),
        (
            {"epochs": 10, "log_every": 16, "checkpoint_every": 16},
            {1: 32, 2: 48, 3: 64, 4: 80, 5: 90},
        ),
    ],
    ids=["six", "five", "four", "one", "windows longer than an epoch"],
)
def test_each_is_of_the_first_window_that_ends_with_its_epoch_or_after(
    settings, expected, make_trainer, tmp_path
):
    train(make_trainer(**settings), tmp_path)
    assert ages(tmp_path) == expected


def test_they_hold_all_chains_as_they_were(make_trainer, tmp_path):
    seen, trainer = {}, make_trainer(**LONG)
    train(trainer, tmp_path, watching(trainer, seen))
    buffers = snapshots.read(tmp_path)
    for buffer, iteration in zip(buffers, (20, 28, 36, 48, 54), strict=True):
        assert torch.equal(buffer.images, seen[0, iteration])
        assert (buffer.labels, buffer.source) == (None, "buffer")
    assert len({buffer.images.numpy().tobytes() for buffer in buffers}) == 5


def test_chains_of_classes_keep_them(make_trainer, tmp_path, toy_models):
    train(make_trainer(toy_models["factored"], **LONG), tmp_path)
    for buffer in snapshots.read(tmp_path):
        assert buffer.labels.tolist() == [0] * 10 + [1] * 10 + [2] * 10


@pytest.mark.parametrize(
    ("model", "settings"),
    [("classifier", {}), ("jem", {"chains.sampler": '"sgld:steps=2,step_size=0.1"'})],
)
def test_without_chains_that_are_kept_there_are_none(
    model, settings, make_trainer, tmp_path, toy_models
):
    train(make_trainer(toy_models[model], **settings), tmp_path)
    assert ages(tmp_path) == {}


def test_one_that_was_kept_on_the_way_to_divergence_is_kept_anew(make_trainer, tmp_path):
    seen, trainer = {}, rig(make_trainer(**LONG), {(0, 31)})
    fitted = train(trainer, tmp_path, watching(trainer, seen))
    assert [(each.iteration, each.returned_to) for each in fitted.interventions] == [(32, 24)]
    assert ages(tmp_path) == {1: 20, 2: 28, 3: 36, 4: 48, 5: 54}
    buffers = snapshots.read(tmp_path)
    assert torch.equal(buffers[0].images, seen[0, 20])
    assert torch.equal(buffers[1].images, seen[1, 28])
    assert not torch.equal(seen[0, 28], seen[1, 28])


def test_chains_that_are_not_finite_are_never_kept(make_trainer, tmp_path):
    trainer = make_trainer(**LONG)

    def poison(loss):
        trainer.chains.sampler.images[0] = float("nan")
        return loss

    fitted = train(rig(trainer, {(0, 20)}, poison), tmp_path)
    (intervention,) = fitted.interventions
    assert (intervention.iteration, intervention.reason) == (
        20,
        "a weight or a stored chain was not finite",
    )
    assert ages(tmp_path) == {1: 20, 2: 28, 3: 36, 4: 48, 5: 54}


def buffers(n=5, labels=None):
    images = np.random.default_rng(0).integers(0, 256, (n, 6, 1, 2, 2), dtype=np.uint8)
    return [
        Samples(torch.from_numpy(part), labels, "buffer", torch.full((6,), age))
        for age, part in enumerate(images)
    ]


def test_together_they_are_five_times_as_many_images():
    found = snapshots.together(buffers(labels=torch.arange(6)))
    assert torch.equal(found.images, torch.cat([part.images for part in buffers()]))
    assert found.labels.tolist() == 5 * list(range(6))
    assert found.ages.tolist() == [age for age in range(5) for _ in range(6)]
    assert snapshots.together(buffers()).labels is None


def test_the_mean_is_of_each_pixel_of_each_slot():
    found = snapshots.pixelwise_mean(buffers(labels=torch.arange(6)))
    exact = np.stack([part.images.numpy() for part in buffers()]).astype(float).mean(axis=0)
    np.testing.assert_array_equal(found.images.numpy(), np.rint(exact))
    assert found.images.dtype == torch.uint8
    assert found.labels.tolist() == list(range(6))
    assert found.ages is None


@pytest.mark.parametrize("n", [0, 4])
def test_fewer_than_five_are_refused(n):
    message = (
        f"the training leaves {n}. Train for at least five epochs, with a sampler that keeps its "
        "chains"
    )
    with pytest.raises(Unavailable, match=message):
        snapshots.require_five(n)


def test_a_damaged_file_is_an_error_and_not_a_training_that_was_too_short(make_trainer, tmp_path):
    train(make_trainer(**LONG), tmp_path)
    path = tmp_path / "buffer-3.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(
        CheckpointError, match=rf"{path} is damaged .*Remove the folder {tmp_path} to train"
    ):
        snapshots.read(tmp_path)
