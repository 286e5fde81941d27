import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jembench.errors import CheckpointError, printable
from jembench.store import checkpoint

texts = st.text(max_size=5).map(printable)  # which texts of files always are
scalars = (
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False) | texts
)
states = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.integers() | texts, inner, max_size=3)
    ),
    max_leaves=10,
)


@given(state=states)
def test_plain_values_come_back_with_their_types(state, tmp_path_factory):
    path = tmp_path_factory.mktemp("c") / "state"
    checkpoint.write(path, state)
    assert checkpoint.read(path) == state


def test_tensors_come_back_bit_for_bit(tmp_path):
    state = {
        "a": [torch.randn(3, 4).t(), torch.tensor(7)],
        5: {"b.c": torch.randn(2).bfloat16()},
        "none": None,
    }
    checkpoint.write(tmp_path / "state", state)
    back = checkpoint.read(tmp_path / "state")
    assert torch.equal(back["a"][0], state["a"][0])
    assert torch.equal(back["a"][1], state["a"][1])
    assert torch.equal(back[5]["b.c"], state[5]["b.c"])
    assert back["none"] is None


def test_tied_weights_are_written_under_each_of_their_names(tmp_path):
    layer, whole = torch.nn.Linear(3, 3), torch.arange(6.0)
    state = {
        "a": layer.weight,
        "b": layer.weight,
        "left": whole[:3],
        "right": whole[3:],
        "empty": torch.empty(0),
    }
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
    assert torch.equal(
        other.state_dict()["state"][0]["exp_avg"], optimizer.state_dict()["state"][0]["exp_avg"]
    )
    (group,), (expected,) = (
        other.state_dict()["param_groups"],
        optimizer.state_dict()["param_groups"],
    )
    assert group == {**expected, "betas": list(expected["betas"])}  # a tuple comes back as a list


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
        for name, dtype in (
            ("real", torch.float32),
            ("whole", torch.int64),
            ("wave", torch.complex64),
        ):
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
