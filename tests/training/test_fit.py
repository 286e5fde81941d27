"""Whole fits: killed, resumed, diverged, out of space."""

import csv
import errno
import os

import pytest
import torch

from jembench.errors import CheckpointError, Diverged, StoreError
from jembench.training import checkpoint
from jembench.training.fit import fit


def weights(folder):
    return checkpoint.read(folder / "model.safetensors")


def rows(folder):
    with (folder / "history.csv").open() as stream:
        return list(csv.DictReader(stream))


class Killed(BaseException):
    """As good as a kill: nothing catches it."""


@pytest.mark.parametrize("stop", [4, 8, 20, 32])
def test_a_fit_that_was_killed_ends_as_one_that_was_not(stop, make_trainer, tmp_path):
    def kill(done, total, note):
        if done >= stop:
            raise Killed

    straight = fit(make_trainer(), tmp_path / "straight")
    with pytest.raises(Killed):
        fit(make_trainer(), tmp_path / "killed", kill)
    resumed = fit(make_trainer(), tmp_path / "killed")
    assert resumed.iteration == straight.iteration
    for name, value in weights(tmp_path / "straight").items():
        assert torch.equal(value, weights(tmp_path / "killed")[name])
    losses = [[row["loss"] for row in rows(tmp_path / folder)] for folder in ("straight", "killed")]
    assert losses[0] == losses[1]
    assert len(losses[0]) == 9


def test_a_finished_fit_trains_no_more(make_trainer, tmp_path):
    fit(make_trainer(), tmp_path)
    trainer = make_trainer()
    trainer.iterate = pytest.fail
    fit(trainer, tmp_path)


def test_the_best_by_validation_is_kept_and_the_latest_of_equals(make_trainer, tmp_path, monkeypatch):
    trainer = make_trainer()
    accuracies = iter([0.5, 0.9, 0.9, 0.3, 0.3])
    seen = {}

    def validate():
        seen[trainer.iteration] = trainer.model.net[1].weight.detach().clone()
        return type("V", (), {"accuracy": next(accuracies), "nll": 1.0})

    monkeypatch.setattr(trainer, "validate", validate)
    fitted = fit(trainer, tmp_path)
    assert (fitted.iteration, fitted.validation_accuracy) == (24, 0.9)
    assert torch.equal(weights(tmp_path)["net.1.weight"], seen[24])


def test_without_validation_images_the_last_is_kept(make_trainer, tmp_path):
    fitted = fit(make_trainer(**{"data.validation": 0, "epochs": 2}), tmp_path)
    assert fitted.iteration == 20
    assert fitted.validation_accuracy is None


def test_divergence_stops_with_a_reason_and_keeps_the_last_good_checkpoint(make_trainer, tmp_path):
    trainer = make_trainer()
    loss = trainer.model.training_loss

    def explode(batch, negatives):
        good = loss(batch, negatives)
        return good._replace(total=good.total * (float("nan") if trainer.iteration == 18 else 1))

    trainer.model.training_loss = explode
    with pytest.raises(Diverged, match="iteration 19: loss was nan"):
        fit(trainer, tmp_path)
    assert checkpoint.read(tmp_path / "checkpoint.safetensors")["trainer"]["iteration"] == 16
    assert all(value.isfinite().all() for value in weights(tmp_path).values())


def test_a_loss_beyond_all_bounds_is_divergence(make_trainer, tmp_path):
    trainer = make_trainer()
    loss = trainer.model.training_loss
    trainer.model.training_loss = lambda b, n: (good := loss(b, n))._replace(total=good.total * 1e12)
    with pytest.raises(Diverged, match="loss was"):
        fit(trainer, tmp_path)


def test_a_chain_that_is_not_finite_never_reaches_a_checkpoint(make_trainer, tmp_path):
    trainer = make_trainer()

    def spoil(done, total, note):
        if done == 16:
            trainer.sampler.buffer.images[0] = float("inf")

    with pytest.raises(Diverged, match="a weight or a stored chain is not finite"):
        fit(trainer, tmp_path, spoil)
    assert checkpoint.read(tmp_path / "checkpoint.safetensors")["trainer"]["iteration"] == 8


def test_a_full_disk_keeps_the_previous_checkpoint(make_trainer, tmp_path, monkeypatch):
    replace, written = os.replace, []

    def full(source, target):
        written.append(target)
        if len(written) > 6:
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(StoreError, match=r"No space left on device.*free some space"):
        fit(make_trainer(), tmp_path)
    monkeypatch.setattr(os, "replace", replace)
    assert checkpoint.read(tmp_path / "checkpoint.safetensors")["trainer"]["iteration"] == 8
    assert not list(tmp_path.glob(".*"))
    fit(make_trainer(), tmp_path)
    fit(make_trainer(), tmp_path.parent / "straight")
    assert torch.equal(weights(tmp_path)["net.1.weight"], weights(tmp_path.parent / "straight")["net.1.weight"])


def test_a_checkpoint_of_another_sampler_is_refused_and_kept(make_trainer, tmp_path):
    fit(make_trainer(), tmp_path)
    before = (tmp_path / "checkpoint.safetensors").read_bytes()
    with pytest.raises(CheckpointError, match="replay buffer"):
        fit(make_trainer(**{"chains.sampler": '"pcd:steps=3,buffer=60"'}), tmp_path)
    assert (tmp_path / "checkpoint.safetensors").read_bytes() == before


def test_a_trained_model_has_learned(make_trainer, tmp_path):
    assert fit(make_trainer(epochs=20), tmp_path).validation_accuracy == 1.0
