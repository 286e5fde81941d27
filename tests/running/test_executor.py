"""Jobs one after the other."""

import pytest

from jembench.running import executor


class Jobs:
    """Jobs that each say False so many times before they are done; all calls are noted."""

    def __init__(self, monkeypatch, **refusals):
        self.left = dict(refusals)
        self.calls = []
        self.jobs = [lambda name=name: self.call(name) for name in refusals]
        monkeypatch.setattr(executor.time, "sleep", lambda seconds: self.calls.append("sleep"))

    def call(self, name):
        self.calls.append(name)
        self.left[name] -= 1
        return self.left[name] < 0


@pytest.mark.parametrize(
    ("refusals", "calls"),
    [
        ({}, []),
        ({"a": 0, "b": 0}, ["a", "b"]),
        ({"a": 1, "b": 0}, ["a", "b", "a"]),
        ({"a": 2}, ["a", "sleep", "a", "sleep", "a"]),
        ({"a": 2, "b": 1, "c": 0}, ["a", "b", "c", "a", "b", "a"]),
        ({"a": 1, "b": 1}, ["a", "b", "sleep", "a", "b"]),
    ],
)
def test_a_job_that_waits_for_another_process_is_tried_again_after_the_others(monkeypatch, refusals, calls):
    jobs = Jobs(monkeypatch, **refusals)
    executor.local().run(jobs.jobs)
    assert jobs.calls == calls


def test_an_error_is_the_caller_s(monkeypatch):
    def fails():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        executor.local().run([fails])
