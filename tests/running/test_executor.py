"""Units one after the other, in this process."""

from pathlib import Path

import pytest

from jembench.interfaces.running import Driver, Ended, Job
from jembench.running import executor


def job(name, order):
    return Job(id=name, name=name, kind="fit", order=order, gpus=1, text="{}")


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
    found.open(Driver(store=Path(), options=(), environment={}, carry_out=carry_out))
    return found


def test_an_error_is_the_caller_s(local):
    local.submit([job("fails", 0), job("later", 1)])
    with pytest.raises(ZeroDivisionError):
        local.ended(0)
    assert local.calls == ["fails"]
