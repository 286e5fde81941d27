import errno
import os
import time

import pytest
import torch
from fits import (
    ONCE,
    Killed,
    assert_equal_weights,
    divergences,
    kill,
    kill_from,
    newest,
    rig,
    rows,
    weights,
)

from jembench import progress
from jembench.errors import CheckpointError, Diverged, OutOfTime, StoreError
from jembench.models.nets import small
from jembench.models.wide_resnet import ResidualNet
from jembench.training import guard
from jembench.training.choice import SelectedWeights
from jembench.training.fit import train
from tests.training.conftest import ToyPhased


def small_net():
    return ResidualNet(1, 3, small(2))


KINDS = {
    "plain": {},
    "average": {"optimizer.average": 0.9},
    "convolutions": {"net": small_net, "optimizer.learning_rate": 0.002},
    "momentum": {"optimizer.name": "sgd", "optimizer.momentum": 0.9},
    "sharpness": {"optimizer.sharpness": 0.5, "data.labelled": 30, "data.labelled_batch": 6},
    "conditional": {"chains.conditional": "true"},
    "phases": {"model": ToyPhased, "optimizer.average": 0.9},
}


@pytest.mark.parametrize(
    ("kind", "stop"),
    [
        ("plain", 4),
        ("plain", 20),
        ("average", 8),
        ("convolutions", 20),
        ("momentum", 32),
        ("sharpness", 20),
        ("conditional", 20),
        ("phases", 20),
    ],
)
def test_a_fit_that_was_killed_ends_as_one_that_was_not(kind, stop, make_trainer, tmp_path):
    straight_folder, killed_folder = tmp_path / "straight" / "fit", tmp_path / "killed" / "fit"
    straight = train(make_trainer(**KINDS[kind]), straight_folder)
    with pytest.raises(Killed):
        train(make_trainer(**KINDS[kind]), killed_folder, kill_from(stop))
    resumed = train(make_trainer(**KINDS[kind]), killed_folder)
    assert resumed.iteration == straight.iteration
    assert_equal_weights(straight_folder, killed_folder)
    for buffer in straight_folder.glob("buffer-?.safetensors"):
        assert buffer.read_bytes() == (killed_folder / buffer.name).read_bytes()
    losses = [[row["loss"] for row in rows(folder)] for folder in (straight_folder, killed_folder)]
    assert losses[0] == losses[1]
    assert len(losses[0]) == 9


def test_the_averaged_weights_become_the_model(make_trainer, tmp_path):
    trainer = make_trainer(**{"optimizer.average": 0.9, "data.validation": 0})
    train(trainer, tmp_path)
    kept = weights(tmp_path)
    for name, value in trainer.model.state_dict().items():
        assert torch.equal(kept[name], trainer.average.state[name])
        assert not torch.equal(kept[name], value)


def test_the_averaged_weights_are_validated_and_the_others_trained(make_trainer):
    trainer = make_trainer(**{"optimizer.average": 0.9})
    trainer.iterate()
    own = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    with torch.no_grad():
        for value in trainer.average.state.values():
            value.zero_()
    assert trainer.validate()["nll"] == pytest.approx(1.0986, abs=1e-4)  # log 3: all logits alike
    assert all(torch.equal(value, own[name]) for name, value in trainer.model.state_dict().items())


@pytest.mark.parametrize("how", [{}, {"guard.mode": "watch"}], ids=["repair", "watch"])
def test_an_event_for_each_window_has_the_numbers_of_the_history(how, make_trainer, tmp_path):
    events = []
    fitted = train(rig(make_trainer(**how), {(0, 19)}), tmp_path, events.append)
    windows = [event for event in events if event.kind == "window"]
    assert [event.done for event in windows[:5]] == [4, 8, 12, 16, 20]
    assert str(windows[4].values["loss"]) == "nan"
    assert {event.total for event in events} == {36}
    (divergence,) = divergences(events)
    assert (divergence["iteration"], divergence["reason"]) == (20, "loss was nan")
    assert ("returned_to" in divergence) == (how == {})
    names = list(rows(tmp_path)[-1])
    of_events = [
        [str(event.values.get(name, "")) for name in names] for event in windows if event.done != 20
    ]
    of_file = [[row[name] for name in names] for row in rows(tmp_path) if row["iteration"] != "20"]
    assert of_events == of_file
    assert "validation_accuracy" in fitted.history[-1]


def test_the_losses_of_the_last_window_stand_beside_the_progress(make_trainer, tmp_path):
    said = []
    train(make_trainer(), tmp_path, lambda event: said.append((event.kind, progress.now().text)))
    losses = {"loss": "loss", "energy_data": "E(data)", "energy_samples": "E(samples)"}
    last = " ".join(
        f"{word} {float(rows(tmp_path)[-1][name]):.3f}" for name, word in losses.items()
    )
    assert said[0] == ("progress", "training")
    assert said[-1] == ("window", f"training, {last}")


def test_a_finished_fit_trains_no_more(make_trainer, tmp_path):
    train(make_trainer(), tmp_path)
    trainer = make_trainer()
    trainer.iterate = pytest.fail
    train(trainer, tmp_path)


def test_the_best_by_validation_is_kept_and_the_latest_of_equals(
    make_trainer, tmp_path, monkeypatch
):
    trainer = make_trainer()
    accuracies = iter([0.5, 0.9, 0.9, 0.3, 0.3])
    seen = {}

    def validate():
        seen[trainer.iteration] = trainer.model.net[1].weight.detach().clone()
        return {"accuracy": next(accuracies), "nll": 1.0}

    monkeypatch.setattr(trainer, "validate", validate)
    fitted = train(trainer, tmp_path)
    assert (fitted.iteration, fitted.validation_accuracy) == (24, 0.9)
    assert torch.equal(weights(tmp_path)["net.1.weight"], seen[24])


def test_without_validation_images_the_last_is_kept_and_no_other_written(make_trainer, tmp_path):
    with pytest.raises(Killed):
        train(make_trainer(**{"data.validation": 0, "epochs": 2}), tmp_path, kill_from(12))
    assert not (tmp_path / "model.safetensors").exists()
    fitted = train(make_trainer(**{"data.validation": 0, "epochs": 2}), tmp_path)
    assert fitted.iteration == 20
    assert fitted.validation_accuracy is None


def poison_a_chain(trainer):
    def change(loss):
        trainer.chains.sampler.images[0] = float("inf")
        return loss

    return change


def poison_a_gradient(trainer):
    """The loss is finite and its gradient is not: the square root's at 0."""
    bias = trainer.model.net[1].bias
    return lambda loss: loss._replace(total=loss.total + 0 * (0 * bias).sum().sqrt())


@pytest.mark.parametrize("poison", [poison_a_chain, poison_a_gradient])
@pytest.mark.parametrize("in_time", [True, False])
def test_what_is_not_finite_never_reaches_a_checkpoint(make_trainer, tmp_path, poison, in_time):
    trainer = make_trainer(**ONCE)
    last = 16 if in_time else 4
    rig(trainer, {(0, last), (1, last)}, poison(trainer))
    with pytest.raises(Diverged, match=rf"^Training diverged at iteration {last} \("):
        train(trainer, tmp_path, deadline=None if in_time else time.time())
    assert newest(tmp_path) == last // 2 // 8 * 8


def test_a_fit_that_another_process_trains_now_is_left_as_it_is(make_trainer, tmp_path):
    seen = []

    def check():
        seen.append({path.name: path.read_bytes() for path in tmp_path.iterdir()})
        if len(seen) == 3:
            raise StoreError("lost")

    with pytest.raises(StoreError, match="lost"):
        train(make_trainer(), tmp_path, check=check)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == seen[-1]
    assert seen[-1] != seen[0]


@pytest.mark.parametrize("name", ["model.safetensors", "sampler.safetensors"])
def test_a_fit_whose_chosen_model_was_removed_begins_anew(make_trainer, tmp_path, name):
    mended = train(rig(make_trainer(), {(0, 19)}), tmp_path)
    assert mended.interventions
    (tmp_path / name).unlink()
    with pytest.raises(Killed):  # what it was mended by then is forgotten, also after a kill
        train(make_trainer(), tmp_path, kill)
    fitted = train(make_trainer(), tmp_path)
    assert fitted.interventions == []
    train(make_trainer(), tmp_path / "straight")
    assert_equal_weights(tmp_path, tmp_path / "straight")


@pytest.mark.parametrize(("better", "kept"), [("higher", 16), ("lower", 32)])
def test_the_measurement_of_a_metric_selects_also_after_a_kill(
    better, kept, make_trainer, tmp_path
):
    values = {8: 0.5, 16: 0.9, 24: 0.3, 32: 0.3, 36: 0.4}

    def trained(report):
        trainer = make_trainer()
        return train(
            trainer,
            tmp_path,
            report,
            select=lambda: SelectedWeights("x", values[trainer.iteration], better),
        )

    for stop in (20, 28):
        with pytest.raises(Killed):
            trained(kill_from(stop))
    fitted = trained(lambda _: None)
    assert (fitted.iteration, fitted.selected) == (kept, SelectedWeights("x", values[kept], better))
    assert [float(row["validation_x"]) for row in rows(tmp_path) if row["validation_x"]] == list(
        values.values()
    )


@pytest.mark.parametrize("kind", ["plain", "average"])
def test_a_fit_that_is_out_of_time_stops_and_ends_as_one_that_was_not(kind, make_trainer, tmp_path):
    straight = train(make_trainer(**KINDS[kind]), tmp_path / "straight")
    reached = []
    for _ in range(8):
        with pytest.raises(
            OutOfTime, match=r"The time is up after \d+ of 36 iterations\. The same command goes on"
        ):
            train(make_trainer(**KINDS[kind]), tmp_path / "stopped", deadline=time.time() - 1)
        reached.append(newest(tmp_path / "stopped"))
    assert reached == [4, 8, 12, 16, 20, 24, 28, 32]
    stopped = train(make_trainer(**KINDS[kind]), tmp_path / "stopped", deadline=time.time() - 1)
    assert (stopped.iteration, stopped.validation_accuracy) == (
        straight.iteration,
        straight.validation_accuracy,
    )
    assert_equal_weights(tmp_path / "straight", tmp_path / "stopped")
    assert [row["loss"] for row in stopped.history] == [row["loss"] for row in straight.history]


@pytest.mark.parametrize(("diverging", "counted"), [(set(), 36), ({(0, 7)}, 36 + 2)])
def test_the_iterations_of_a_window_before_a_signal_are_counted_once(
    make_trainer, tmp_path, monkeypatch, diverging, counted
):
    """The signal comes after iteration 6 of windows of 4, and a repair goes back to there."""
    monkeypatch.setattr("jembench.training.fit.SIGNAL_INTERVAL", 0.0)
    trainer = make_trainer()
    with monkeypatch.context() as patch:
        patch.setattr("jembench.stopping.received", lambda: trainer.iteration == 6)
        with pytest.raises(OutOfTime):
            train(trainer, tmp_path)
    resumed = train(rig(make_trainer(), diverging), tmp_path)
    assert sum(row["iterations"] for row in resumed.history) == counted


@pytest.mark.parametrize("stops", [(6,), (2, 6, 7, 35)])
def test_windows_that_signals_cut_short_are_logged_and_judged_whole(
    make_trainer, tmp_path, monkeypatch, stops
):
    monkeypatch.setattr("jembench.training.fit.SIGNAL_INTERVAL", 0.0)
    judged = []
    verdict = guard.verdict

    def judge(rows, starts):
        if starts:
            judged.append([row["loss"] for row in rows])
        return verdict(rows, starts)

    monkeypatch.setattr(guard, "verdict", judge)
    rate = {"schedule.warmup_iterations": 30}
    straight = train(make_trainer(**rate), tmp_path / "straight")
    expected, judged[:] = judged[:], []
    for stop in stops:
        trainer = make_trainer(**rate)
        with monkeypatch.context() as patch:
            patch.setattr(
                "jembench.stopping.received", lambda at=trainer, stop=stop: at.iteration == stop
            )
            with pytest.raises(OutOfTime):
                train(trainer, tmp_path / "stopped")
    stopped = train(make_trainer(**rate), tmp_path / "stopped")
    untimed = [[row | {"seconds": 0} for row in fitted.history] for fitted in (straight, stopped)]
    assert untimed[0] == untimed[1]
    assert judged == expected
    assert all(row["seconds"] > 0 for row in stopped.history)


def test_a_full_disk_keeps_the_previous_checkpoint(make_trainer, tmp_path, monkeypatch):
    replace, written = os.replace, []

    def full(source, target):
        written.append(target)
        if len(written) > 6:
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(StoreError, match=r"No space left on device.*Free some space"):
        train(make_trainer(), tmp_path)
    monkeypatch.setattr(os, "replace", replace)
    assert newest(tmp_path) == 8
    assert not list(tmp_path.glob(".*"))
    train(make_trainer(), tmp_path)
    train(make_trainer(), tmp_path.parent / "straight")
    assert_equal_weights(tmp_path, tmp_path.parent / "straight")


@pytest.mark.parametrize("name", ["model.safetensors", "sampler.safetensors", "interventions.json"])
def test_what_is_damaged_ends_a_training_before_it_goes_on(make_trainer, tmp_path, name):
    trainer = rig(make_trainer(), {(0, 3)})
    with pytest.raises(Killed):
        train(trainer, tmp_path, kill_from(20))
    path = tmp_path / name
    content = path.read_bytes()
    path.write_bytes(content[:-20] + bytes([content[-20] ^ 1]) + content[-19:])
    with pytest.raises(CheckpointError, match=f"{path} is damaged.*emove the folder {tmp_path}"):
        train(make_trainer(), tmp_path)


def test_a_checkpoint_of_another_sampler_is_refused_and_kept(make_trainer, tmp_path):
    train(make_trainer(), tmp_path)
    (kept,) = tmp_path.glob("checkpoint-*.safetensors")
    before = kept.read_bytes()
    with pytest.raises(CheckpointError, match="replay buffer"):
        train(make_trainer(**{"chains.sampler": '"pcd:steps=3,buffer=60"'}), tmp_path)
    assert kept.read_bytes() == before


def test_a_trained_model_has_learned(make_trainer, tmp_path):
    assert train(make_trainer(epochs=20), tmp_path).validation_accuracy == 1.0
