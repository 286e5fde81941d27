"""Checks of every executor, with units that end, fail, die and sleep."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import executor_sessions as under_test
import fake_worker
from executor_sessions import ExecutorSubject, is_alive

from jembench.testing.checks import checks_of, is_count, only_if, promise, require

AT_ONCE = 5.0
"""Seconds in which a call must return that does not wait."""


def check_executor(spec):
    """The checks of an executor: order, slots, endings, workers that die, cancellation."""
    return checks_of(spec, ExecutorSubject)


@promise("executors")
def can_be_made(subject: ExecutorSubject) -> None:
    """The factory gives an executor: it says how many units run at once and where, is opened and
    closed.

    See jembench.interfaces.running.Executor. An engine that cannot be reached raises
    jembench.plugin.Unavailable when it is opened, with the remedy.
    """
    executor = subject.make()
    missing = [
        part
        for part in subject.parts
        if not hasattr(type(executor), part) and not hasattr(executor, part)
    ]
    require(not missing, f"It has no {', '.join(missing)}.")
    with subject.session() as session:
        executor = session.executor
        require(
            is_count(executor.slots),
            f"slots is {executor.slots!r}; it must be a whole number of at least 1.",
        )
        require(isinstance(executor.here, bool), "here must be True or False.")
        require(not executor.ended(0), "A unit has ended, and none was submitted.")


@promise("executors")
def each_ends_once(subject: ExecutorSubject) -> None:
    """Every unit that is submitted is carried out and ends once, also those submitted late and
    those submitted again.

    A worker is the driver's command of some units, with its environment added.
    """
    with subject.session() as session:
        jobs = session.submit(*["done"] * 3)
        jobs += session.submit(*["done"] * 2)
        endings = session.endings(jobs)
        wrong = next((ended for ended in endings.values() if ended.how != "done"), None)
        require(
            wrong is None,
            f"A unit that is done has ended as {wrong.how}: {wrong.text}" if wrong else "",
        )
        again = jobs[:1] + session.jobs("done")
        session.executor.submit(again)
        session.endings(again)
        expected = Counter(job.id for job in (*jobs, *again))
        require(
            Counter(session.begun) == expected,
            "Units were carried out more or less often than once.",
        )


@promise("executors")
def at_the_same_time(subject: ExecutorSubject) -> None:
    """As many units run at the same time as it says.

    Let slots be 1 if units run one after the other.
    """
    with subject.session() as session:
        count = session.at_once
        only_if(count > 1, "It runs one unit after the other.")
        ids = " ".join(f"unit-{number}" for number in range(1, count + 1))
        alone = sum(
            ended.how != "done"
            for ended in session.run(*[f"meets {under_test.LIMIT / 2} {ids}"] * count)
        )
        require(
            not alone,
            f"{alone} of {count} units waited for the others in vain, which had not begun.",
        )


@promise("executors")
def every_ending(subject: ExecutorSubject) -> None:
    """What a worker says of how a unit ended comes through with its text, and nothing of it is
    tried again.

    Give out what a worker's line of JSON says; trying again is for workers that died.
    """
    with subject.session() as session:
        whats = [f"{how} because of «{how}»" for how in under_test.ENDINGS]
        for what, ended in zip(whats, session.run(*whats), strict=True):
            require(
                f"{ended.how} {ended.text}" == what,
                f"{what!r} came through as {ended.how!r}, {ended.text!r}.",
            )
        require(len(session.begun) == len(whats), "A unit was tried again that had ended.")


@promise("executors")
def killed_worker(subject: ExecutorSubject) -> None:
    """A unit whose worker is killed is tried again, and is lost if that happens each time; no other
    one suffers.

    Units that were given to the same worker and have not ended are to be submitted again; the one
    that was being carried out a few times only.
    """
    with subject.session() as session:
        once, always, *others = session.run("dies-once", "dies", "done", "done", "dies", "done")
        require(once.how == "done", f"A unit whose worker died once has ended as {once.how}.")
        require(always.how == "lost", f"A unit whose workers all died has ended as {always.how}.")
        require(bool(always.text), "Its text does not say why it is lost.")
        hows = [ended.how for ended in others]
        require(
            hows == ["done", "done", "lost", "done"], f"The others have ended as {', '.join(hows)}."
        )


@promise("executors")
def other_version(subject: ExecutorSubject) -> None:
    """A unit ends if its worker prints an error and exits, as that of another version does, and
    says where to read it.

    Let log name the file with what the worker printed on stderr, or repeat the end of it in text.
    """
    with subject.session() as session:
        bad, good = session.run("exits", "done")
        require(bad.how in ("refused", "failed", "lost"), f"It has ended as {bad.how}.")
        require(good.how == "done", f"Another one has ended as {good.how}.")
        printed = Path(bad.log).read_text() if bad.log else ""
        require(
            fake_worker.UNKNOWN in f"{printed} {bad.text}",
            "Neither its log nor its text says what happened.",
        )


@promise("executors")
def cancel_drops_what_waits(subject: ExecutorSubject) -> None:
    """After cancel, units that wait do not start. They end as stopped, or not at all.

    Empty the queue, that of the engine as well.
    """
    with subject.session() as session:
        jobs = session.submit(*["done"] * (session.executor.slots + 3))
        session.executor.cancel()
        endings = session.settle()
        begun = set(session.begun)
        require(
            endings.keys() <= {job.id for job in jobs}, "A unit has ended that was not submitted."
        )
        require(len(begun) < len(jobs), f"All of {len(jobs)} units have begun.")
        wrong = [
            each for each in endings.values() if each.how != "stopped" and each.id not in begun
        ]
        require(not wrong, f"A unit has ended as {wrong[0].how} that never began." if wrong else "")


@promise("executors")
def cancel_stops_what_runs(subject: ExecutorSubject) -> None:
    """After cancel, units that run are stopped cleanly and soon, and nothing else starts.

    Send SIGTERM to the workers, and nothing harder before they have had time to write a checkpoint.
    """
    with subject.session() as session:
        session.submit(*["sleeps"] * (session.at_once + 3))
        session.wait_for(session.at_once)
        session.executor.cancel()
        endings = session.settle()
        hows = {endings[unit].how for unit in session.begun}
        require(
            hows == {"stopped"}, f"Units that were stopped have ended as {', '.join(sorted(hows))}."
        )


@promise("executors")
def ended_does_not_wait(subject: ExecutorSubject) -> None:
    """While units run, ended(0) returns at once."""
    with subject.session() as session:
        session.submit("sleeps")
        session.wait_for(1)
        start = time.monotonic()
        endings = session.executor.ended(0)
        require(not endings, "A unit has ended that sleeps.")
        require(time.monotonic() - start < AT_ONCE, f"It took {time.monotonic() - start:.0f} s.")


@promise("executors")
def close_leaves_nothing(subject: ExecutorSubject) -> None:
    """After close, no worker is left, also of those that were at work.

    End workers and wait for them; those that an engine has started as well.
    """
    with subject.session() as session:
        session.submit(*["sleeps"] * session.at_once)
        session.wait_for(session.at_once)
        workers = fake_worker.pids(session.folder)
    end = time.monotonic() + under_test.LIMIT
    while (left := sum(map(is_alive, workers))) and time.monotonic() < end:
        time.sleep(0.05)
    require(not left, f"{left} of {len(workers)} workers run {under_test.LIMIT:g} s after it.")
