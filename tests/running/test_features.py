"""Feature networks and features of real images: made once, shared, kept, and made again when damaged."""

import multiprocessing
import time

import pytest
import torch

from jembench.catalog import registry
from jembench.interfaces import Features
from jembench.metrics import features
from jembench.running import caches
from jembench.running.caches import FeatureBank
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


# --- several processes ------------------------------------------------------------------------------------------------


def _prepare(log, root, data):
    identity = FeatureBank(data, Store(root), torch.device("cpu")).network("cnn").identity
    with log.open("a") as file:
        file.write(f"{identity}\n")


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_several_processes_train_a_network_once(zoo_of_tests, tmp_path, monkeypatch):
    import zoo_of_tests as zoo

    log = tmp_path / "log"

    def train(spec, images, labels):
        with log.open("a") as file:
            file.write("trained\n")
        time.sleep(0.1)  # the others come meanwhile
        return features._make_net(spec).eval()

    monkeypatch.setattr(features, "_train", train)
    monkeypatch.setattr(caches, "WAIT", 0.01)
    fork = multiprocessing.get_context("fork")
    crowd = [fork.Process(target=_prepare, args=(log, tmp_path / "runs", zoo.data())) for _ in range(3)]
    for one in crowd:
        one.start()
    for one in crowd:
        one.join()
        assert one.exitcode == 0
    first, *identities = log.read_text().splitlines()
    assert first == "trained"
    assert len(identities) == 3
    assert len(set(identities)) == 1
    assert list((tmp_path / "runs" / "leases").iterdir()) == []
