"""Shared parts of tests of whole fits: files, kills, and losses that fail on purpose."""

import csv

import torch

from jembench.store import checkpoint
from jembench.training.checkpoints import Checkpoints

ONCE = {"guard.ladder": '["seed"]'}
"""The second divergence is the end."""


def weights(folder):
    return checkpoint.read(folder / "model.safetensors")


def rows(folder):
    with (folder / "history.csv").open() as stream:
        return list(csv.DictReader(stream))


def newest(folder):
    """The iteration of the newest state."""
    return Checkpoints(folder).newest()["trainer"]["iteration"]


def assert_equal_weights(folder, other):
    values, expected = weights(folder), weights(other)
    assert values.keys() == expected.keys()
    for name, value in values.items():
        assert torch.equal(value, expected[name]), name


class Killed(BaseException):
    """As good as a kill: nothing catches it."""


def kill(*_):
    raise Killed


def kill_from(iteration):
    """Kills at the end of the first window that reaches that iteration."""

    def report(event):
        if event.kind == "window" and event.done >= iteration:
            raise Killed

    return report


def kill_at_divergence(number):
    """Kills when divergence is reported for that time."""
    divergences = []

    def report(event):
        divergences.extend([event] if event.kind == "diverged" else [])
        if len(divergences) == number:
            raise Killed

    return report


def divergences(events):
    """The values of the events that report divergence."""
    return [dict(event.values) for event in events if event.kind == "diverged"]


def not_a_number(loss):
    return loss._replace(total=loss.total * float("nan"))


def rig(trainer, places, change=not_a_number):
    """Change the loss in those iterations, each given as (attempt, iteration)."""

    def watch(batch, negatives, loss):
        return change(loss) if (trainer.adjustment.seeds, trainer.iteration + 1) in places else loss

    trainer.model.watch = watch
    return trainer
