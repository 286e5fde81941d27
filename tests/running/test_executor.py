"""Units one after the other, in this process."""

from pathlib import Path

import pytest

from jembench.interfaces.running import Driver, Ended, Executor, Job
from jembench.running import executor


def job(name, order):
    return Job(id=name, name=name, kind="train", order=order, gpus=1, text="{}")


@pytest.fixture
def local():
    """An executor whose units note that they were carried out; the one named ``fails`` raises."""
    calls = []

    def carry_out(job):
        calls.append(job.id)
        if job.id == "fails":
            raise ZeroDivisionError
        return Ended(id=job.id, how="done")

    found = executor.local()
    found.calls = calls
    found.open(Driver(store=Path(), arguments=list, environment={}, carry_out=carry_out))
    return found


def test_the_unit_that_is_first_in_order_runs_next_whenever_it_was_submitted(local):
    local.submit([job("b", 1), job("d", 3)])
    assert [ended.id for ended in local.ended(0)] == ["b"]
    local.submit([job("c", 2), job("a", 0)])
    assert [ended.id for _ in range(3) for ended in local.ended(0)] == ["a", "c", "d"]
    assert isinstance(local, Executor)


def test_an_error_is_the_caller_s(local):
    local.submit([job("fails", 0), job("later", 1)])
    with pytest.raises(ZeroDivisionError):
        local.ended(0)
    assert local.calls == ["fails"]
