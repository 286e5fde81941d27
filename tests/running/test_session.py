"""The executor that ``auto`` chooses."""

import pytest

from jembench.api.runs import plan_run
from jembench.models import devices
from jembench.running.session import _fastest
from jembench.store.store import Store


@pytest.fixture
def fastest(monkeypatch, tmp_path):
    """What is chosen on a machine of 8 cores, unless it has GPUs."""
    monkeypatch.setattr("torch.get_num_threads", lambda: 8)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)

    def fastest(models=("jem", "baseline"), seeds=(0,), device="auto"):
        chosen = {"models": models, "seeds": seeds, "datasets": ["digits"], "metrics": ["accuracy"]}
        return _fastest(plan_run("hybrid", recipe=None, settings=(), limit=None, **chosen), Store(tmp_path), device)

    return fastest


def test_trainings_of_one_thread_run_at_once(fastest):
    assert fastest() == fastest(device="cpu") == "processes:jobs=2"
    assert fastest(["jem"], seeds=range(20)) == "processes:jobs=4"


def test_as_many_as_pytorch_would_use_threads(fastest, monkeypatch):
    for threads, chosen in [(3, "processes:jobs=3"), (1, "local")]:
        monkeypatch.setattr("torch.get_num_threads", lambda threads=threads: threads)
        assert fastest(seeds=(0, 1)) == chosen


def test_one_training_stays_in_this_process(fastest, monkeypatch):
    assert fastest(["jem"]) == "local"
    monkeypatch.setattr(Store, "is_trained", lambda store, key: key.model == "jem")
    assert fastest() == "local"


def test_large_images_have_all_cores_for_each_training(fastest, monkeypatch):
    monkeypatch.setattr(devices, "SMALL", 63)
    assert fastest() == "local"


def test_code_of_this_program_stays_in_this_process(fastest, zoo_of_tests):
    assert fastest(["zoo_of_tests:jem", "jem"]) == "local"


@pytest.mark.parametrize(
    ("gpus", "device", "chosen"),
    [(1, "auto", "local"), (2, "auto", "processes"), (2, "cuda:1", "local"), (2, "cpu", "processes:jobs=2")],
)
def test_gpus_come_first(fastest, monkeypatch, gpus, device, chosen):
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    assert fastest(device=device) == chosen
