"""``jembench work``: how units end."""

from types import SimpleNamespace

import pytest

from jembench.cli import work
from jembench.errors import OutOfTime, StoreError, Unavailable
from jembench.interfaces import Event
from jembench.store.outcome import FitKey
from jembench.store.store import Store


@pytest.mark.parametrize(
    ("result", "how", "text"),
    [
        (True, "done", ""),
        (False, "busy", ""),
        (OutOfTime("The time is up."), "stopped", "The time is up."),
        (KeyboardInterrupt(), "stopped", ""),
        (StoreError("The disk\nis full."), "failed", "The disk is full."),
        (ZeroDivisionError("by 0"), "failed", "ZeroDivisionError: by 0"),
        (Unavailable("There is no digits."), "refused", "There is no digits."),
    ],
)
def test_how_a_unit_ends_is_told_to_the_driver_and_noted(tmp_path, monkeypatch, result, how, text):
    def carry_out(unit):
        if isinstance(result, BaseException):
            raise result
        return result

    fit = FitKey(model="jem", dataset="digits", recipe="digits", seed=0, id="f1")
    monkeypatch.setattr(work, "_read", lambda store, unit: SimpleNamespace(id=unit, kind="train", fit=fit))
    store = Store(tmp_path)
    store.works.append(Event(kind="started", work="u1"))
    ended = work._carry_out(lambda: SimpleNamespace(carry_out=carry_out), store, "u1")
    assert (ended.id, ended.how, ended.text) == ("u1", how, text)
    if how == "done":  # for no run
        assert list(store.works.folder.iterdir()) == []
    else:
        last = store.works.latest("u1").last
        assert (last.kind, last.values["how"], last.text) == ("ended", how, text)
