"""States on disk."""

import threading
import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jembench.errors import CheckpointError, StoreError
from jembench.store import checkpoint

scalars = st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False) | st.text(max_size=5)
states = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.integers() | st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(state=states)
def test_plain_values_come_back_with_their_types(state, tmp_path_factory):
    path = tmp_path_factory.mktemp("c") / "state"
    checkpoint.write(path, state)
    assert checkpoint.read(path) == state


def test_tensors_come_back_bit_for_bit(tmp_path):
    state = {"a": [torch.randn(3, 4).t(), torch.tensor(7)], 5: {"b.c": torch.randn(2).bfloat16()}, "none": None}
    checkpoint.write(tmp_path / "state", state)
    back = checkpoint.read(tmp_path / "state")
    assert torch.equal(back["a"][0], state["a"][0])
    assert torch.equal(back["a"][1], state["a"][1])
    assert torch.equal(back[5]["b.c"], state[5]["b.c"])
    assert back["none"] is None


def test_tied_weights_are_written_under_each_of_their_names(tmp_path):
    layer, whole = torch.nn.Linear(3, 3), torch.arange(6.0)
    state = {"a": layer.weight, "b": layer.weight, "left": whole[:3], "right": whole[3:], "empty": torch.empty(0)}
    checkpoint.write(tmp_path / "state", state)
    back = checkpoint.read(tmp_path / "state")
    assert all(torch.equal(back[name], value) for name, value in state.items())


def test_an_optimiser_s_state_comes_back(tmp_path):
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.Adam([parameter], 0.1)
    parameter.sum().backward()
    optimizer.step()
    checkpoint.write(tmp_path / "state", optimizer.state_dict())
    other = torch.optim.Adam([torch.nn.Parameter(torch.ones(3))], 0.1)
    other.load_state_dict(checkpoint.read(tmp_path / "state"))
    assert torch.equal(other.state_dict()["state"][0]["exp_avg"], optimizer.state_dict()["state"][0]["exp_avg"])
    (group,), (expected,) = other.state_dict()["param_groups"], optimizer.state_dict()["param_groups"]
    assert group == {**expected, "betas": list(expected["betas"])}  # a tuple comes back as a list


def test_a_model_s_file_is_plain_safetensors(tmp_path):
    from safetensors.torch import load_file

    net = torch.nn.Linear(2, 3)
    checkpoint.write(tmp_path / "model.safetensors", dict(net.state_dict()))
    assert load_file(tmp_path / "model.safetensors").keys() == {"weight", "bias"}


@pytest.mark.parametrize("damage", [lambda b: b[: len(b) // 2], lambda b: b"", lambda b: b"not a checkpoint" * 9])
def test_a_damaged_file_is_an_error_that_says_what_to_do(damage, tmp_path):
    path = tmp_path / "state"
    checkpoint.write(path, {"a": torch.ones(100)})
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CheckpointError, match=r"state is damaged \(.*\)\. Remove the file"):
        checkpoint.read(path)


def test_a_newer_file_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "SCHEMA", 99)
    checkpoint.write(tmp_path / "state", {})
    monkeypatch.setattr(checkpoint, "SCHEMA", 1)
    with pytest.raises(CheckpointError, match="newer jembench"):
        checkpoint.read(tmp_path / "state")


class Mixed(torch.nn.Module):
    """A state of every kind of number."""

    def __init__(self):
        super().__init__()
        for name, dtype in (("real", torch.float32), ("whole", torch.int64), ("wave", torch.complex64)):
            self.register_buffer(name, torch.ones(2, dtype=dtype))


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({}, []),
        ({"real": torch.float64, "whole": torch.int32, "wave": torch.complex128}, []),
        ({"real": torch.int8}, ["real holds int8 instead of float32"]),
        (
            {"real": torch.complex64, "whole": torch.float16},
            ["real holds complex64 instead of float32", "whole holds float16 instead of int64"],
        ),
        ({"wave": torch.float32}, ["wave holds float32 instead of complex64"]),
    ],
)
def test_another_precision_fits_and_another_kind_of_number_does_not(changes, wrong):
    weights = Mixed().state_dict()
    for name, dtype in changes.items():
        weights[name] = torch.ones(2, dtype=dtype)
    assert checkpoint.misfits(Mixed(), weights) == wrong


def test_shapes_and_names_that_do_not_fit_are_listed_with_them():
    weights = {
        "real": torch.ones(3, dtype=torch.bool),
        "whole": torch.ones(2, dtype=torch.int64),
        "more": torch.ones(1),
    }
    assert checkpoint.misfits(Mixed(), weights) == [
        "more is unknown",
        "real holds bool instead of float32",
        "real is (3,) instead of (2,)",
        "wave is missing",
    ]


# --- a thread that writes ---------------------------------------------------------------------------------------------


@pytest.fixture
def large(monkeypatch):
    """All states are written by a thread."""
    monkeypatch.setattr(checkpoint, "LARGE", 0)


@pytest.mark.usefixtures("large")
def test_a_state_is_written_as_it_was_while_it_changes(tmp_path):
    state = {"weights": torch.zeros(4), "history": [1]}
    changed = threading.Event()

    def late(packed):
        changed.wait()
        packed.write(tmp_path / "state", age=7)

    with checkpoint.Writer() as writer:
        writer.write(state, late)
        state["weights"] += 1
        state["history"].append(2)
        changed.set()
    back = checkpoint.read(tmp_path / "state")
    assert (back["weights"].tolist(), back["history"], checkpoint.age_of(tmp_path / "state")) == ([0] * 4, [1], 7)


@pytest.mark.usefixtures("large")
def test_states_are_written_one_after_the_other(tmp_path):
    order = []
    with checkpoint.Writer() as writer:
        for number in range(5):
            writer.write({"number": torch.tensor(number)}, lambda packed: order.append(int(packed.tensors["number"])))
        writer.wait()
        assert order == [0, 1, 2, 3, 4]


def test_a_small_state_is_written_at_once_but_after_a_large_one(monkeypatch):
    threads = []
    goes_on = threading.Event()

    def note(packed):
        threads.append(threading.current_thread() is threading.main_thread())

    with checkpoint.Writer() as writer:
        writer.write({"a": torch.zeros(1)}, note)
        assert threads == [True]
        with monkeypatch.context() as patch:
            patch.setattr(checkpoint, "LARGE", 0)
            writer.write({}, lambda packed: goes_on.wait())
        writer.write({"a": torch.zeros(1)}, note)
        assert threads == [True]
        goes_on.set()
    assert threads == [True, False]


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("ask", ["check", "wait", "write"])
def test_what_goes_wrong_is_raised_once_by_the_next_call(ask):
    def full(packed):
        raise StoreError("the disk is full")

    with checkpoint.Writer() as writer:
        writer.write({}, full)
        while not writer._writing[0].done():
            time.sleep(0.001)
        with pytest.raises(StoreError, match="full"):
            getattr(writer, ask)(*[{}, full][: 2 * (ask == "write")])
        writer.wait()


@pytest.mark.usefixtures("large")
def test_the_end_raises_what_went_wrong_unless_there_is_an_error_already():
    def full(packed):
        raise StoreError("the disk is full")

    def end_by(error=None):
        with checkpoint.Writer() as writer:
            writer.write({}, full)
            if error:
                raise error

    with pytest.raises(StoreError, match="full"):
        end_by()
    with pytest.raises(KeyError):
        end_by(KeyError)


class OnCuda(torch.Tensor):
    """A tensor of the CPU that says otherwise."""

    is_cuda = True


@pytest.mark.usefixtures("large")
def test_what_lies_on_a_gpu_is_written_when_its_copy_is_there(monkeypatch):
    """The copy is queued on the device before training goes on, and the thread waits for it, not the host."""
    happened = []
    pinned = torch.empty

    class Event:
        def record(self):
            happened.append("queued")

        def synchronize(self):
            happened.append("copied")
            assert threading.current_thread() is not threading.main_thread()

    def empty(*size, pin_memory, **options):
        assert pin_memory
        return pinned(*size, **options)

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch, "empty", empty)
    weights = torch.arange(6.0).view(2, 3).t().as_subclass(OnCuda)
    with checkpoint.Writer() as writer:
        writer.write({"weights": weights}, lambda packed: happened.append(packed.tensors["weights"].tolist()))
        weights += 1
    assert happened == ["queued", "copied", [[0, 3], [1, 4], [2, 5]]]
