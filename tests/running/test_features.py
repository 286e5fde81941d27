"""Feature networks and features of real images: made once, shared, kept, and made again when
damaged.
"""

from types import SimpleNamespace

import pytest
import torch

from jembench.catalog import registry
from jembench.interfaces import Features
from jembench.running import caches
from jembench.running.caches import FeatureBank
from jembench.store.lease import in_work
from jembench.store.store import Store

IMAGES = torch.arange(2 * 9, dtype=torch.uint8).reshape(2, 1, 3, 3)


class Network:
    """Counts what it is asked."""

    name = "counting"

    def __init__(self, identity="counting@1"):
        self.identity, self.prepared, self.asked = identity, 0, 0

    def make(self):
        return self

    def prepare(self, dataset, cache, device):
        self.prepared += 1

    def features(self, images):
        self.asked += 1
        pixels = images.flatten(1).float()
        return Features(pixels, 2 * pixels)


@pytest.fixture
def network(monkeypatch):
    network = Network()
    monkeypatch.setattr(registry, "resolve", lambda kind, spec: network)
    return network


def bank(tmp_path):
    return FeatureBank(None, Store(tmp_path), torch.device("cpu"))


def test_features_are_computed_once_for_each_network_and_images(network, tmp_path):
    shared = bank(tmp_path)
    first, second = shared.of_images("net", IMAGES), shared.of_images("net", IMAGES)
    assert first is second
    assert (network.prepared, network.asked) == (1, 1)
    kept = bank(tmp_path).of_images("net", IMAGES)  # of another run
    assert network.asked == 1
    assert all(torch.equal(a, b) for a, b in zip(first, kept, strict=True))
    shared.of_images("net", IMAGES.flip(0))
    network.identity = "counting@2"
    shared.of_images("net", IMAGES)
    assert network.asked == 3


def test_a_network_that_is_trained_here_is_left_to_the_process_that_trains_it(
    network, tmp_path, monkeypatch
):
    store, data = Store(tmp_path), SimpleNamespace(spec=SimpleNamespace(name="three"))
    network.trained_here = True
    other = store.lease("features-three-net")
    other.__enter__()
    monkeypatch.setattr(
        caches.time, "sleep", lambda seconds: [other.__exit__(None, None, None), waited.append(1)]
    )
    waited = []
    assert FeatureBank(data, Store(tmp_path), torch.device("cpu")).network("net") is network
    assert (waited, network.prepared) == ([1], 1)
    assert not in_work(store.leases)
