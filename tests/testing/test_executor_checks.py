"""Every check of executors catches the faults planted for it.

They are planted in ``processes``, which passes all checks: see ``test_first_party_components.py``.
"""

import dataclasses
import time

import pytest

from jembench.running.processes import Processes
from jembench.testing import check_executor, perform
from jembench.testing.executors import conduct, subject


class Sound(Processes):
    """Two processes without GPUs: no need to ask for them."""

    _gpus = ()

    def __init__(self, retries=1):
        super().__init__(jobs=2, per_gpu=1, retries=retries)


class NowhereKnown(Sound):
    here = None


class Bare:
    slots = 1


class NoSlots(Sound):
    slots = 0


class EndsTwice(Sound):
    def ended(self, seconds):
        return 2 * super().ended(seconds)


class ForgetsTheSecond(Sound):
    given = False

    def submit(self, jobs):
        if not self.given:
            super().submit(jobs)
        self.given = True


class OneAtATime(Sound):
    def _is_busy(self, place):
        return any(worker.job for worker in self._workers.values())


class Summarises(Sound):
    def ended(self, seconds):
        return [dataclasses.replace(ended, text="something happened") for ended in super().ended(seconds)]


class TriesFailuresAgain(Sound):
    def ended(self, seconds):
        found = super().ended(seconds)
        for ended in found:
            if ended.how == "failed" and ended.id not in self._died:
                self._died[ended.id] = 1
                self.submit([job for job in self.jobs if job.id == ended.id])
                return []
        return found

    def submit(self, jobs):
        self.jobs = jobs
        super().submit(jobs)


class NeverTriesAgain(Sound):
    def __init__(self):
        super().__init__(retries=0)


class TriesForEver(Sound):
    def __init__(self):
        super().__init__(retries=10**6)


class KeepsNoLog(Sound):
    def ended(self, seconds):
        return [dataclasses.replace(ended, log="") for ended in super().ended(seconds)]


class CannotCancel(Sound):
    def cancel(self):
        pass


class Kills(Sound):
    """What is asked to stop is killed, and tried again."""

    def cancel(self):
        for worker in self._workers.values():
            worker.process.kill()


class Waits(Sound):
    def ended(self, seconds):
        time.sleep(0.3)
        return super().ended(seconds)


LEFT = []


class Leaves(Sound):
    def close(self):
        LEFT.append(self)


FAULTS = [
    (NowhereKnown, "can-be-made", "here must be True or False"),
    (Bare, "can-be-made", "It has no gpus, here, open"),
    (NoSlots, "can-be-made", "slots is 0"),
    (EndsTwice, "each-ends-once", "ended twice"),
    (Summarises, "every-ending", "'something happened'"),
    (TriesFailuresAgain, "every-ending", "tried again that had ended"),
    (NeverTriesAgain, "killed-worker", "whose worker died once has ended as lost"),
    (KeepsNoLog, "other-version", "Neither its log nor its text says what happened"),
    (CannotCancel, "cancel-drops-what-waits", "All of 5 units have begun"),
    (Waits, "ended-does-not-wait", "It took"),
]

ENDLESS = [
    (ForgetsTheSecond, "each-ends-once", "units have not ended"),
    (TriesForEver, "killed-worker", "units have not ended"),
    (CannotCancel, "cancel-stops-what-runs", "has not ended"),
    (Kills, "cancel-stops-what-runs", "has not ended"),
    (Leaves, "close-leaves-nothing", "workers run"),
]
"""Faults by which something never ends."""


@pytest.fixture
def result(monkeypatch):
    """What becomes of one check of an executor."""
    monkeypatch.setattr(subject, "CALM", 0.2)

    def result(executor, name):
        (check,) = [each for each in check_executor(f"{__name__}:{executor.__name__}") if each.name == name]
        return perform(check)

    return result


@pytest.mark.parametrize(("executor", "check", "words"), FAULTS)
def test_a_fault_is_found(result, executor, check, words, monkeypatch):
    monkeypatch.setattr(conduct, "AT_ONCE", 0.1)
    found = result(executor, check)
    assert (found.status, words in found.message) == ("failed", True), found.message


@pytest.mark.parametrize(("executor", "check", "words"), ENDLESS)
def test_what_does_not_end_is_a_fault(result, executor, check, words, monkeypatch):
    monkeypatch.setattr(subject, "LIMIT", 1.0)
    found = result(executor, check)
    while LEFT:
        Processes.close(LEFT.pop())
    assert found.status == "failed"
    assert words in found.message or "have begun after" in found.message  # on a machine that is busy


def test_units_that_run_one_after_the_other_do_not_meet(result, monkeypatch):
    monkeypatch.setattr(subject, "LIMIT", 3.0)
    found = result(OneAtATime, "at-the-same-time")
    assert "1 of 2 units waited for the others in vain" in found.message
