import importlib
import sys

import pytest
import torch

from jembench.errors import PluginError, Remark
from jembench.models import settings
from jembench.models.settings import SETTINGS, isolated
from jembench.stopping import Stopped


def state():
    return {setting.name: setting.read() for setting in SETTINGS}


@pytest.fixture
def left(zoo_of_tests):
    """Functions that leave each setting changed, which is undone in the end."""
    before = [setting.read() for setting in SETTINGS]
    yield importlib.import_module("zoo_of_tests").LEFT
    settings._write(before)


@pytest.mark.parametrize("name", [setting.name for setting in SETTINGS])
def test_what_is_left_changed_is_set_back_and_named(left, name):
    before, notes = state(), []
    with isolated("The factory of x", notes.append):
        left[name]()
        assert state()[name] != before[name]
    assert state() == before
    assert notes == [
        f"The factory of x left {name} changed. jembench restored this, and no other result "
        "changes."
    ]


def test_the_code_runs_under_standard_settings_and_those_of_the_user_come_back(left):
    for change in left.values():
        change()
    of_user = state()
    with isolated("x", pytest.fail):
        assert torch.ones(1, requires_grad=True).mul(2).requires_grad
        assert (torch.ones(1) @ torch.ones(1)).dtype == torch.float32
        assert torch.ones(1).device.type == "cpu"
        found = state()
    assert state() == of_user
    kept = {setting.name for setting in SETTINGS if setting.standard is None}
    assert {name for name in found if found[name] == of_user[name]} == kept


def test_stdout_that_was_closed_is_opened_again(monkeypatch, capfd):
    stream = open(1, "w", closefd=False)  # noqa: SIM115
    monkeypatch.setattr("sys.stdout", stream)
    monkeypatch.setattr("sys.__stdout__", stream)
    with isolated("x", lambda text: None):
        sys.stdout.close()
    print("heard", flush=True)
    sys.stdout.close()
    assert capfd.readouterr().out == "heard\n"


def test_without_a_place_for_it_the_sentence_is_a_warning(left):
    said = pytest.warns(Remark, match="The factory of x left the grad mode, cuDNN's TF32 changed")
    with said, isolated("The factory of x"):
        left["the grad mode"](), left["cuDNN's TF32"]()


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt, Stopped])
def test_a_failure_of_the_code_and_an_interrupt_pass(left, error, monkeypatch):
    monkeypatch.setattr("jembench.stopping._received", 15)
    notes = []

    @isolated("x", notes.append)
    def fail():
        left["the grad mode"]()
        raise error

    with pytest.raises(error):
        fail()
    assert len(notes) == 1


@pytest.mark.parametrize("error", [SystemExit(3), type("Own", (BaseException,), {})("y")])
def test_what_would_end_the_program_is_a_failure(error):
    with (
        pytest.raises(PluginError, match=f"x ends the program .{type(error).__name__}: "),
        isolated("x"),
    ):
        raise error
