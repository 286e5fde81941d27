"""What the two processes of ``test_processes.py`` do together: ``python two_processes.py FOLDER``.

Each writes what it ends with as ``rank-N.pt``. The second is a fork of the first, so that torch is imported once.
"""

import os
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from conftest import DATA, Toy, ToyClassifier, ToyFactored, toy_images, toy_recipe
from jembench import seeds
from jembench.errors import ProcessLost
from jembench.interfaces import Negatives
from jembench.models.densities import FirstBatch
from jembench.training import processes
from jembench.training.fit import train
from jembench.training.loop import Trainer

SGD = {"batch_size": 10, "optimizer.name": "sgd", "data.validation": 10}
JEM = {"batch_size": 10, "data.validation": 10}


def net(*layers):
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 3), *layers)


class Centred(torch.nn.Module):
    """Sets its shift by the first batch that it is trained on, as the actnorms of a flow do."""

    def __init__(self):
        super().__init__()
        self.shift = torch.nn.Parameter(torch.zeros(3))
        self.first_batch = FirstBatch()

    def forward(self, x):
        if self.training and self.first_batch.is_to_come:
            self.shift.data.copy_(x.detach().mean(dim=0))
            self.first_batch.end()
        return x - self.shift


def make_trainer(group=processes.SINGLE, model=Toy, layers=(), **overrides):
    with seeds.initialising(0):
        made = model(net(*layers))
    recipe = toy_recipe(**overrides)
    return Trainer(made, DATA, toy_images(), recipe, seed=0, device=torch.device("cpu"), group=group)


def state(trainer):
    return {name: value.clone() for name, value in trainer.model.state_dict().items()}


def after(trainer, iterations):
    for _ in range(iterations):
        trainer.iterate()
    return state(trainer)


def with_given_negatives(trainer, x):
    """All processes' negatives are the rows of ``x``, and each takes its part."""
    trainer._negatives = lambda batch: Negatives(x[trainer.group.part(len(x))], None)
    return trainer


def given_negatives():
    return torch.rand((10, 1, 4, 4), generator=torch.Generator().manual_seed(5)) * 2 - 1


class Bug(Exception):
    """Of a plugin."""


def fails(trainer, iteration):
    """The loss raises in that iteration."""
    loss = trainer.model.training_loss

    def broken(batch, negatives):
        if trainer.iteration == iteration:
            raise Bug("a bug")
        return loss(batch, negatives)

    trainer._loss = broken
    return trainer


def is_nan(trainer, iteration):
    """The loss is NaN the first time it comes to that iteration."""
    loss, times = trainer.model.training_loss, []

    def spoilt(batch, negatives):
        value = loss(batch, negatives)
        if trainer.iteration == iteration and not times:
            times.append(iteration)
            return value._replace(total=value.total * float("nan"))
        return value

    trainer._loss = spoilt
    return trainer


def stop_at(iteration):
    def report(event):
        if event.done >= iteration:
            raise Bug("stopped")

    return report


def together(trainer, folder, **options):
    """One fit: what rank 0 does, and what the other does."""
    if trainer.group.rank:
        return processes.serve(trainer, trainer.group)
    return train(trainer, folder, **options)


def main(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder / 'meeting'}", rank=rank, world_size=2)
    processes.BARRIER_TIMEOUT = timedelta(seconds=1)
    group = processes.DistributedGroup()
    found = {}

    found["gathered"] = group.gather({"rank": torch.tensor(rank)})
    found["told"] = group.broadcast({"from": torch.tensor(rank)})

    found["classifier"] = after(make_trainer(group, ToyClassifier, **SGD), 12)
    found["sharpness"] = after(make_trainer(group, ToyClassifier, **SGD, **{"optimizer.sharpness": 0.5}), 12)
    found["batch norm"] = after(make_trainer(group, layers=[torch.nn.BatchNorm1d(3)], **JEM), 5)

    found["set by the first batch"] = after(make_trainer(group, ToyClassifier, layers=[Centred()], **SGD), 3)

    found["window"] = with_given_negatives(make_trainer(group, **SGD), given_negatives()).window(4)

    for name, model in {"marginal": Toy, "conditional": ToyFactored}.items():
        trainer = make_trainer(group, model, **JEM)
        after(trainer, 5)
        found[f"{name} part"] = trainer.sampler.state_dict()
        found[f"{name} classes"] = trainer.sampler.kept().y
        found[f"{name} whole"] = trainer.chains()

    trainer = make_trainer(group, **JEM)
    together(trainer, folder / "straight")
    found["straight"] = state(trainer)
    for stop in (8, 16):
        trainer = make_trainer(group, **JEM)
        if rank:
            together(trainer, None)
        else:
            try:
                together(trainer, folder / "stopped", report=stop_at(stop))
            except Bug:
                found["stopped"] = trainer.iteration
    trainer = make_trainer(group, **JEM)
    together(trainer, folder / "stopped")
    found["resumed"] = state(trainer)

    trainer = make_trainer(group, **JEM)
    fitted = together(is_nan(trainer, 13) if rank else trainer, folder / "diverged")
    found["diverged"] = state(trainer)
    found["adjustment"] = trainer.adjustment
    found["interventions"] = fitted and fitted.interventions

    try:
        together(fails(make_trainer(group, **JEM), 6), folder / "bug everywhere")
    except Bug as error:
        found["bug everywhere"] = str(error)
    found["after the bug"] = group.gather(rank)

    try:
        trainer = make_trainer(group, **JEM)
        together(fails(trainer, 6) if rank else trainer, folder / "bug in one")
    except ProcessLost as error:
        found["bug in one"] = str(error)
    torch.save(found, folder / f"rank-{rank}.pt")


if __name__ == "__main__":
    second = os.fork()
    main(0 if second else 1, Path(sys.argv[1]))
    if second:
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(second, 0)[1]))
