"""The start and the last two states of a fit: which is read, and what is left after a kill."""

import shutil

import pytest
import torch

from jembench.errors import CheckpointError, Fallback
from jembench.store import checkpoint
from jembench.training.checkpoints import Checkpoints

TURNS = "checkpoint-0.safetensors", "checkpoint-1.safetensors"
START = "checkpoint-start.safetensors"


def state(number):
    return {"number": number, "weights": torch.full((100,), float(number))}


@pytest.fixture
def checkpoints(tmp_path):
    """After the start and the iterations 10, 20, 30."""
    checkpoints = Checkpoints(tmp_path)
    checkpoints.begin(state(0))
    for number in (10, 20, 30):
        checkpoints.write(state(number), number)
    return checkpoints


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def tear(path):
    path.write_bytes(path.read_bytes()[:-50])


def holder(folder, number):
    """The file that a state lies in."""
    (path,) = [folder / name for name in TURNS if checkpoint.age_of(folder / name) == number]
    return path


def test_nothing_and_a_start_alone(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.newest() is None
    checkpoints.begin(state(0))
    assert checkpoints.newest()["number"] == 0


def test_the_last_two_and_the_start_are_kept(checkpoints, tmp_path):
    assert files(tmp_path) == [*TURNS, START]
    found = []
    for _ in range(4):
        found.append(checkpoints.newest()["number"])
        checkpoints.drop_newest()
    assert found == [30, 20, 0, 0]  # the start is never dropped
    assert files(tmp_path) == [START]


def test_a_state_that_takes_the_newest_one_s_place_leaves_the_other(checkpoints):
    checkpoints.write(state(40), 40, over_newest=True)
    assert checkpoints.newest()["number"] == 40
    checkpoints.drop_newest()
    assert checkpoints.newest()["number"] == 20


def flip(path):
    """One bit of the last tensor; the header stays whole."""
    content = path.read_bytes()
    path.write_bytes(content[:-2] + bytes([content[-2] ^ 16]) + content[-1:])


@pytest.mark.parametrize(
    "damage",
    [flip, tear, lambda path: path.write_bytes(b""), lambda path: path.write_bytes(b"torn" * 9)],
)
def test_a_damaged_newest_state_falls_back_to_the_one_before_and_says_so(
    checkpoints, tmp_path, damage
):
    path = holder(tmp_path, 30)
    damage(path)
    before = holder(tmp_path, 20)
    with pytest.warns(
        Fallback, match=rf"{path} is damaged .* The training goes on from {before.name}\."
    ):
        assert checkpoints.newest()["number"] == 20
    checkpoints.write(state(30), 30)  # takes the torn one's place
    assert checkpoints.newest()["number"] == 30
    checkpoints.drop_newest()
    assert checkpoints.newest()["number"] == 20


def test_both_torn_falls_back_to_the_start(checkpoints, tmp_path):
    for name in TURNS:
        tear(tmp_path / name)
    with pytest.warns(Fallback, match="goes on from checkpoint-start"):
        assert checkpoints.newest()["number"] == 0


def test_all_torn_is_an_error_that_says_what_to_do(checkpoints, tmp_path):
    for name in (*TURNS, START):
        tear(tmp_path / name)
    with pytest.raises(
        CheckpointError, match=rf"is damaged .*Remove the folder {tmp_path} to train"
    ):
        checkpoints.newest()
    assert files(tmp_path) == [*TURNS, START]


def test_the_end_keeps_the_newest_alone(checkpoints, tmp_path):
    kept = holder(tmp_path, 30).name
    checkpoints.tidy()
    assert files(tmp_path) == [kept]
    assert checkpoints.newest()["number"] == 30
    checkpoints.tidy()
    assert checkpoints.newest()["number"] == 30


def test_a_state_may_have_more_tensors_than_a_network(tmp_path, monkeypatch):
    # the state of an optimiser has several for each weight
    monkeypatch.setenv("JEMBENCH_MAX_TENSORS", "2")
    written = Checkpoints(tmp_path)
    for number in (1, 2, 3):
        written.write({"number": number, "moments": [torch.zeros(1) for _ in range(4)]}, number)
    assert Checkpoints(tmp_path).newest()["number"] == 3


def test_the_checkpoint_of_another_fit_is_passed_over(checkpoints, tmp_path):
    other = tmp_path / "other"
    Checkpoints(other).write(state(99), 99)
    shutil.copy(other / TURNS[0], holder(tmp_path, 20))
    with pytest.warns(Fallback, match=r"written under another name or in another folder.*goes on"):
        assert checkpoints.newest()["number"] == 30
