"""Fits that diverge: what the guard notices, where it goes back to, and what it does about it."""

import math

import pytest
import torch
from fits import (
    ONCE,
    Killed,
    assert_equal_weights,
    divergences,
    kill,
    kill_at_divergence,
    kill_from,
    newest,
    not_a_number,
    rig,
    rows,
    weights,
)
from torch import nn

from jembench.errors import Diverged
from jembench.interfaces import Energies
from jembench.interfaces.evaluation import Stability
from jembench.store import records
from jembench.training import guard
from jembench.training.fit import train
from jembench.training.guard import CRITERION, Intervention
from tests.training.conftest import ToyClassifier

WATCH, OFF = {"guard.mode": "watch"}, {"guard.mode": "off"}


def beyond(loss):
    """A loss that counts as divergence, with the gradient that it had."""
    return loss._replace(total=loss.total + 2e8)


def test_divergence_stops_with_a_reason_and_keeps_the_last_good_checkpoint(make_trainer, tmp_path):
    trainer = rig(make_trainer(**ONCE), {(0, 19), (1, 19)})
    repaired = (
        r"It had been repaired at iteration 20 \(loss was nan\): .* back to iteration 16 with the "
        r"remedy seed\. "
    )
    with pytest.raises(
        Diverged,
        match=rf"^Training diverged at iteration 20 \(loss was nan\), and .* left\. {repaired}",
    ):
        train(trainer, tmp_path)
    assert newest(tmp_path) == 16
    assert all(value.isfinite().all() for value in weights(tmp_path).values())
    assert rows(tmp_path)[-1]["loss"] == "nan"


class Cliff(nn.Module):
    """Images with a pixel outside the range of images, where noisy chains go, have energies that
    are 100 higher.
    """

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))

    def forward(self, x):
        return self.net(x) - 100 * (x.flatten(1).abs().amax(dim=1, keepdim=True) > 1.2)


HIDDEN = {
    "net": Cliff,
    "energy_l2": 1e-3,
    "epochs": 8,
    "chains.sampler": '"pcd:steps=3,buffer=30,noise=0.3"',
}


def test_a_collapse_that_an_energy_penalty_hides_is_divergence(make_trainer, tmp_path):
    """The loss stays finite, two of three images are classified right, and the samples lie where no
    image is.
    """
    fitted = train(make_trainer(**HIDDEN, **WATCH), tmp_path)
    assert fitted.validation_accuracy > 0.6
    assert all(abs(row["loss"]) < 1e3 for row in fitted.history)
    assert fitted.stability.diverged_at == 4
    assert fitted.stability.reason.startswith("the highest sample lay 1")


@pytest.mark.parametrize("how", [WATCH, {"guard.ladder": "[]"}], ids=["watch", "no ladder"])
def test_a_watched_divergence_is_recorded_and_training_goes_on(how, make_trainer, tmp_path):
    events, large = [], {(0, 19), (0, 30)}
    watched = train(rig(make_trainer(**how), large, beyond), tmp_path / "watched", events.append)
    unseen = train(rig(make_trainer(**OFF), large, beyond), tmp_path / "unseen")
    (divergence,) = divergences(events)
    assert divergence == {"iteration": 20, "reason": watched.stability.reason}
    assert watched.stability[1:3] == (36, 20)
    assert (watched.stability.remedies, watched.stability.ended_with) == ((), "")
    assert (watched.interventions, unseen.interventions, unseen.stability) == ([], [], None)
    assert_equal_weights(tmp_path / "watched", tmp_path / "unseen")
    assert not (tmp_path / "watched" / "interventions.json").exists()


def test_a_watched_divergence_is_remembered_after_a_kill(make_trainer, tmp_path):
    with pytest.raises(Killed):
        train(rig(make_trainer(**WATCH), {(0, 19)}, beyond), tmp_path, kill_from(28))
    events = []
    resumed = train(make_trainer(**WATCH), tmp_path, events.append)
    assert resumed.stability.diverged_at == 20
    assert divergences(events) == []  # it was said before


def test_a_model_that_is_not_a_number_any_more_is_watched_to_the_end(make_trainer, tmp_path):
    fitted = train(rig(make_trainer(**WATCH, **{"data.validation": 0}), {(0, 19)}), tmp_path)
    assert fitted.stability[1:4] == (40, 20, "loss was nan")
    assert fitted.iteration == 40
    assert any(value.isnan().any() for value in weights(tmp_path).values())


@pytest.mark.parametrize("name", ["jem", "classifier"])
def test_a_healthy_training_is_the_same_in_all_modes(name, make_trainer, toy_models, tmp_path):
    for mode in ("off", "watch", "repair"):
        trainer = make_trainer(toy_models[name], **{"guard.mode": mode})
        if mode == "off":
            trainer.chains.random_starts = pytest.fail  # nobody looks
        fitted = train(trainer, tmp_path / mode)
        unjudged = mode == "off" or name == "classifier"
        expected = None if unjudged else Stability(CRITERION, trainer.iterations, None, "", (), "")
        assert (fitted.interventions, fitted.stability) == ([], expected)
        assert_equal_weights(tmp_path / mode, tmp_path / "off")


def test_it_goes_back_to_the_newest_state_with_other_randomness(make_trainer, tmp_path):
    trainer, events, seen = make_trainer(), [], {}

    def watch(batch, negatives, loss):
        place = trainer.adjustment.seeds, trainer.iteration + 1
        seen[place] = batch, trainer.model.net[1].weight.detach().clone()
        return not_a_number(loss) if place == (0, 19) else loss

    trainer.model.watch = watch
    fitted = train(trainer, tmp_path, events.append)
    intervention = Intervention(iteration=20, reason="loss was nan", returned_to=16, remedy="seed")
    assert fitted.stability == Stability(CRITERION, 36, 20, "loss was nan", ("seed",), "")
    assert fitted.interventions == [intervention]
    assert divergences(events) == [intervention._asdict()]
    assert records.read(tmp_path / "interventions.json").data["interventions"] == [
        intervention._asdict()
    ]
    (before, start), (after, again) = seen[0, 17], seen[1, 17]
    assert torch.equal(start, again)
    assert not torch.equal(before.x, after.x)
    assert not torch.equal(before.x_labelled, after.x_labelled)
    # The abandoned window stays on record, and its time counts.
    assert [(row["attempt"], row["iteration"]) for row in fitted.history] == [
        *[(0, iteration) for iteration in (4, 8, 12, 16, 20)],
        *[(1, iteration) for iteration in (20, 24, 28, 32, 36)],
    ]
    assert fitted.seconds == pytest.approx(sum(4 * row["seconds"] for row in fitted.history))
    assert len(rows(tmp_path)) == 10
    assert all(value.isfinite().all() for value in weights(tmp_path).values())
    assert len(list(tmp_path.glob("checkpoint-*"))) == 1


def test_without_progress_it_goes_back_further_each_time(make_trainer, tmp_path):
    trainer = rig(make_trainer(), {(0, 19), (1, 17), (2, 10), (3, 3)})
    fitted = train(trainer, tmp_path)
    assert [(each.iteration, each.returned_to, each.remedy) for each in fitted.interventions] == [
        (20, 16, "seed"),
        (20, 8, "steps"),
        (12, 0, "rate"),
        (4, 0, "energy_l2"),
    ]
    assert trainer.iteration == 36


def at_distances(trainer, distances):
    """Samples lie so far above the data in the window of that attempt that ends with that
    iteration.
    """
    window = trainer.window

    def moved(n):
        rows, starts = window(n)
        distance = distances.get(
            (trainer.adjustment.seeds, 4 * math.ceil(trainer.iteration / 4)), 0.0
        )
        energies = {
            "energy_data": 0.0,
            "highest_data": 1.0,
            "energy_samples": distance,
            "highest_sample": distance,
        }
        return [row | energies for row in rows], starts

    trainer.window = moved
    return trainer


class Generated(ToyClassifier):
    """A classifier with samples that no chain drew; its loss reports nothing about them but their
    energies.
    """

    far = staticmethod(lambda window: 0.0)  # the distance of samples above the data in a window
    spread, own = 1.0, True  # of the energies of data and samples; False: the samples are outliers

    @property
    def generates(self):
        return self.own

    def training_loss(self, batch, negatives):
        loss = super().training_loss(batch, negatives)
        before = 0 if batch.iteration is None else int(batch.iteration)
        data = self.spread * torch.linspace(-1, 1, len(batch.x))
        return loss._replace(energies=Energies(data, data + self.far(before // 4 + 1)))


def generated(make_trainer, far, **attributes):
    trainer = make_trainer(Generated, **WATCH)
    trainer.model.far = far
    for name, value in attributes.items():
        setattr(trainer.model, name, value)
    return trainer


@pytest.mark.parametrize(
    ("far", "diverged_at", "reason"),
    [
        (lambda window: 0.9, None, ""),
        (
            lambda window: window,
            20,
            "samples lay above the data for 5 windows, by 5 times as much as",
        ),
        (
            lambda window: -2.0 if window > 2 else 0.0,
            28,
            "samples lay below the data for 5 windows, by 2 times",
        ),
        (
            lambda window: 1.1 if window == 9 else 0.0,
            36,
            "samples lay above the data for the last window, by 1.1",
        ),
    ],
)
def test_samples_that_no_chain_drew_are_judged_by_the_energies_of_the_loss(
    make_trainer, tmp_path, far, diverged_at, reason
):
    fitted = train(generated(make_trainer, far), tmp_path)
    assert fitted.stability.criterion == guard.GENERATED
    assert fitted.stability.diverged_at == diverged_at
    assert fitted.stability.reason.startswith(reason)


@pytest.mark.parametrize(
    ("settings", "attributes"),
    [({}, {"own": False}), ({"epochs": 2}, {}), ({}, {"spread": 0.0})],
    ids=["outliers", "four windows", "one energy for all"],
)
def test_a_training_whose_energies_cannot_be_judged_is_not_called_stable(
    make_trainer, tmp_path, settings, attributes
):
    trainer = make_trainer(Generated, **settings, **WATCH)
    for name, value in attributes.items():
        setattr(trainer.model, name, value)
    if settings:
        trainer.iterations = 16
    assert train(trainer, tmp_path).stability is None


@pytest.mark.parametrize("level", [0.0, 3e6])
def test_energies_that_become_equal_are_divergence(make_trainer, tmp_path, level):
    class Saturated(Generated):
        def training_loss(self, batch, negatives):
            loss = super().training_loss(batch, negatives)
            if batch.iteration is None or batch.iteration < 12:
                return loss
            return loss._replace(energies=Energies(*(0 * each + level for each in loss.energies)))

    fitted = train(make_trainer(Saturated, **WATCH), tmp_path)
    assert fitted.stability[2:4] == (16, f"all images and samples had the energy {level:.3g}")


@pytest.fixture
def soon_lost(monkeypatch):
    """Two windows near the data are contact, and two away from it are its loss."""
    monkeypatch.setattr(guard, "CONTACT", 2)
    monkeypatch.setattr(guard, "LOST", 2)


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.usefixtures("soon_lost")
def test_it_goes_back_to_a_state_in_which_the_chains_were_near_the_data(
    make_trainer, tmp_path, killed
):
    """Checkpoints at 16 and 24 are doubtful, so that the one at 8 is still there when contact is
    found to be lost.
    """
    distances = {(0, 16): 0.3, (0, 20): 0.4, (0, 24): 0.4, (0, 28): 0.8, (0, 32): 0.8}
    if killed:
        with pytest.raises(Killed):
            train(at_distances(make_trainer(), distances), tmp_path, kill_from(24))
        assert newest(tmp_path) == 24
    fitted = train(at_distances(make_trainer(), distances), tmp_path)
    assert [(each.iteration, each.returned_to) for each in fitted.interventions] == [(32, 8)]
    assert fitted.stability.ended_with == ""


@pytest.mark.usefixtures("soon_lost")
def test_chains_that_are_lost_when_no_remedy_is_left_end_no_training(make_trainer, tmp_path):
    away = {(attempt, iteration): 0.8 for attempt in (0, 1) for iteration in range(28, 40, 4)}
    fitted = train(at_distances(make_trainer(**ONCE), away), tmp_path)
    assert [(each.iteration, each.returned_to) for each in fitted.interventions] == [(32, 24)]
    assert fitted.stability.ended_with == (
        "samples lay above the data for the last window, by 0.8 times as much as the highest "
        "training image"
    )


def test_every_rung_of_the_ladder_is_in_force(make_trainer, tmp_path):
    trainer = make_trainer()
    gradient, steps, found = trainer.functions.grad_energy, [], {}

    def counting(x, y):
        steps.append(1)
        return gradient(x, y)

    def watch(batch, negatives, loss):
        attempt = trainer.adjustment.seeds
        found.setdefault(attempt, []).append(
            (len(steps), trainer.optimizers[""].param_groups[0]["lr"], loss)
        )
        steps.clear()
        return not_a_number(loss) if attempt < 4 and trainer.iteration == 2 else loss

    trainer.functions.grad_energy, trainer.model.watch = counting, watch
    fitted = train(trainer, tmp_path)
    assert fitted.stability.remedies == ("seed", "steps", "rate", "energy_l2")
    assert (
        fitted.stability.ended_with
        == "6 sampling steps, 0.3 times the learning rate, energy_l2 = 0.1"
    )
    assert [{taken for taken, *_ in found[attempt][1:] if taken} for attempt in range(5)] == [
        {3},
        {3},
        {6},
        {6},
        {6},
    ]
    rates = [{round(rate, 9) for _, rate, _ in found[attempt]} for attempt in range(5)]
    assert rates == [{0.01}] * 3 + [{0.003}] * 2
    for row, losses in ((fitted.history[4], found[4][:4]),):
        assert (row["attempt"], row["iteration"]) == (4, 4)
        penalties = [
            0.1
            * (loss.energies.data.square().mean() + loss.energies.samples.square().mean()).item()
            for _, _, loss in losses
        ]
        plain = [loss.total.item() for _, _, loss in losses]
        assert row["loss"] == pytest.approx((sum(plain) + sum(penalties)) / 4, rel=1e-5)
        assert sum(penalties) > 0.01


def test_the_ladder_s_end_tells_all_that_was_tried(make_trainer, tmp_path):
    ladder = {"guard.ladder": '["seed","steps","rate","energy_l2"]'}
    trainer = rig(make_trainer(**ladder), {(attempt, 3) for attempt in range(9)})
    with pytest.raises(Diverged) as caught:
        train(trainer, tmp_path)
    tried = "; ".join(
        f"at iteration 4 (loss was nan): it went back to iteration 0 with the remedy {remedy}"
        for remedy in ("seed", "steps", "rate", "energy_l2")
    )
    assert f"and no remedy is left. It had been repaired {tried}. The energies are in" in str(
        caught.value
    )
    assert "\n" not in str(caught.value)
    assert [row["attempt"] for row in rows(tmp_path)] == ["0", "1", "2", "3", "4"]
    # and again, without climbing it anew
    with pytest.raises(Diverged, match="the remedy energy_l2"):
        train(rig(make_trainer(**ladder), {(4, 3)}), tmp_path)
    assert len(records.read(tmp_path / "interventions.json").data["interventions"]) == 4


def test_a_model_without_chains_has_a_shorter_ladder(make_trainer, toy_models, tmp_path):
    trainer = rig(make_trainer(toy_models["classifier"]), {(0, 3), (1, 3)})
    fitted = train(trainer, tmp_path)
    assert [each.remedy for each in fitted.interventions] == ["seed", "rate"]
    assert trainer.learning_rate() == pytest.approx(0.003)


TWICE = {(0, 19), (1, 17), (2, 10)}


@pytest.mark.parametrize("interventions", [1, 3])
def test_killed_after_an_intervention_it_goes_on_with_the_remedy(
    make_trainer, tmp_path, interventions
):
    straight = train(rig(make_trainer(), TWICE), tmp_path / "straight")
    assert len(straight.interventions) == 3
    with pytest.raises(Killed):
        train(rig(make_trainer(), TWICE), tmp_path / "killed", kill_at_divergence(interventions))
    resumed = train(rig(make_trainer(), TWICE), tmp_path / "killed")
    assert resumed.interventions == straight.interventions
    assert resumed.iteration == straight.iteration
    assert resumed.validation_accuracy == straight.validation_accuracy
    assert_equal_weights(tmp_path / "straight", tmp_path / "killed")


def test_killed_before_an_intervention_is_on_disk_it_is_made_again(
    make_trainer, tmp_path, monkeypatch
):
    straight = train(rig(make_trainer(), {(0, 19)}), tmp_path / "straight")
    with monkeypatch.context() as patch:
        patch.setattr("jembench.store.records.write", kill)
        with pytest.raises(Killed):
            train(rig(make_trainer(), {(0, 19)}), tmp_path / "killed")
    assert (
        train(rig(make_trainer(), {(0, 19)}), tmp_path / "killed").interventions
        == straight.interventions
    )
    assert_equal_weights(tmp_path / "straight", tmp_path / "killed")


ACCURACY = {0: {8: 0.9, 16: 0.8, 24: 0.95}, 1: {}, 2: {16: 0.8, 24: 0.85, 32: 0.5, 36: 0.5}}
"""Of the attempts that reach an iteration. In the second attempt the state of 24 turns out to be a
bad one.
"""

LEADS_ASTRAY = {(0, 27), (1, 25)}


def choosy(trainer, seen, accuracy=ACCURACY):
    """Validation finds what the test wants, and notes the weights that it looked at."""

    def validate():
        place = trainer.adjustment.seeds, trainer.iteration
        seen[place] = trainer.model.net[1].weight.detach().clone()
        return {"accuracy": accuracy[place[0]][place[1]], "nll": 1.0}

    trainer.validate = validate
    return trainer


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize(("at_24", "expected"), [(0.85, (24, 0.85)), (0.75, (16, 0.8))])
def test_the_chosen_model_is_never_of_a_state_that_was_given_up(
    make_trainer, tmp_path, killed, at_24, expected
):
    accuracy = {**ACCURACY, 2: {**ACCURACY[2], 24: at_24}}
    seen = {}

    def make():
        return choosy(rig(make_trainer(), LEADS_ASTRAY), seen, accuracy)

    if killed:
        with pytest.raises(Killed):
            train(make(), tmp_path, kill_at_divergence(2))
    fitted = train(make(), tmp_path)
    assert [each.returned_to for each in fitted.interventions] == [24, 16]
    assert (fitted.iteration, fitted.validation_accuracy) == expected
    assert torch.equal(weights(tmp_path)["net.1.weight"], seen[2, fitted.iteration])
