"""Processes that train one model together. Here they are threads, between which collectives
exchange tensors.
"""

import copy
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import distributed

from jembench.data.images import Images
from jembench.interfaces import Split
from jembench.training.processes import Group


@pytest.fixture
def together(monkeypatch):
    """Call a function with each of two groups, in a thread each."""
    barrier, slots, rank = threading.Barrier(2, timeout=60), [None, None], threading.local()

    def exchange(x):
        slots[rank.number] = copy.deepcopy(x)
        barrier.wait()
        exchanged = list(slots)
        barrier.wait()
        return exchanged

    def all_gather(parts, x):
        for part, other in zip(parts, exchange(x), strict=True):
            part.copy_(other)

    def broadcast(values, device):
        values[:] = exchange(values)[0]

    def in_thread(function, group):
        rank.number = group.rank
        return function(group)

    monkeypatch.setattr(distributed, "all_gather", all_gather)
    monkeypatch.setattr(distributed, "broadcast_object_list", broadcast)
    monkeypatch.setattr(distributed, "all_reduce", lambda x: x.copy_(sum(exchange(x))))
    with ThreadPoolExecutor(2) as pool:
        yield lambda function: list(pool.map(lambda n: in_thread(function, Group(n, 2)), range(2)))


@pytest.mark.parametrize("kind", ["classifier", "phased"])
def test_two_processes_train_the_model_of_one_but_for_rounding(
    make_trainer, toy_models, together, kind
):
    settings = {"batch_size": 10, "optimizer.name": '"sgd"'}
    alone, *both = (make_trainer(toy_models[kind], **settings) for _ in range(3))
    before = [parameter.clone() for parameter in alone.model.parameters()]
    expected, _ = alone.window(6)

    def train(group):
        both[group.rank].group = group
        return both[group.rank].window(6)[0]

    for rows in together(train):
        assert [row["loss"] for row in rows] == pytest.approx(
            [row["loss"] for row in expected], rel=1e-5
        )
    states = [list(trainer.model.parameters()) for trainer in (alone, *both)]
    for begun, one, first, second in zip(before, *states, strict=True):
        assert torch.equal(first, second)
        torch.testing.assert_close(one - begun, first - begun, rtol=1e-4, atol=1e-7)
        assert not torch.equal(one, begun)


@pytest.mark.parametrize(
    "settings",
    [{}, {"data.shared": "true"}, {"data.pad": 1, "data.noise": 0.03, "data.labelled_batch": 20}],
)
def test_each_process_reads_its_own_rows_and_the_weights_are_the_same(
    make_trainer, toy_split, together, monkeypatch, settings
):
    read = {0: [], 1: []}

    def trainers(group):
        """Return trainers on a tensor and on images in parts."""
        monkeypatch.setattr("jembench.training.processes.group", group)

        def rows(chosen):
            read[group.rank] += chosen.tolist()
            return toy_split.images[chosen]

        images = Images(rows, torch.arange(90), (1, 4, 4))
        splits = toy_split, Split(images, toy_split.labels)
        return [
            make_trainer(images=split, batch_size=10, **{"data.validation": 0, **settings})
            for split in splits
        ]

    made = [trainers(Group(rank, 2)) for rank in range(2)]
    for kind in range(2):
        together(lambda group, kind=kind: made[group.rank][kind].window(6))
    weights = [list(trainer.model.parameters()) for both in made for trainer in both]
    for expected, *others in zip(*weights, strict=True):
        assert all(torch.equal(expected, actual) for actual in others)
    assert len(read[0]) == len(read[1])
    if "data.labelled_batch" not in settings and settings:  # one stream, within the first epoch
        assert not set(read[0]) & set(read[1])
