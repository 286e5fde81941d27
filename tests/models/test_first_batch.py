"""The first batch comes once, in whatever copy of a network it came."""

from torch import nn

from jembench.models.densities import FirstBatch


def test_whoever_loads_the_state_knows():
    seen, fresh = FirstBatch(), FirstBatch()
    seen.end()
    state = {"first.over": seen.over.clone()}
    network = nn.ModuleDict({"first": fresh})
    network.load_state_dict(state)
    assert not fresh.is_to_come
    network.load_state_dict({"first.over": FirstBatch().over})
    assert fresh.is_to_come
