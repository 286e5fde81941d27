"""Signals that ask a process to end: SIGTERM and SIGHUP, which queues and closed terminals send.

The first one stops the work like ``--max-hours``: training writes a checkpoint first, everything else ends where it
is. A second one, more than a second after the first, ends the process at once.
"""

from __future__ import annotations

import os
import signal
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from jembench.errors import OutOfTime, PluginError, ProcessLost, StoreError, error_text

SIGNALS = (signal.SIGTERM, signal.SIGHUP)

BURST = 1.0
"""Seconds in which several signals count as one: a shell and the kernel both send SIGHUP, srun repeats SIGTERM."""

_received = 0  # the number of the first signal
_deferring = 0  # how many contexts of deferred() are open


class Stopped(BaseException):
    """A signal asked the process to end. It is no ``Exception``, so that no handler mistakes it for a failure."""

    def __init__(self) -> None:
        super().__init__(f"{reason()}. Finished work is kept: the same command goes on from there.")


INTERRUPTS = (Stopped, KeyboardInterrupt)
"""Exceptions that request an end; they are no failures of the code that they interrupt."""


def received() -> int:
    """The number of the first signal that asked this process to end, or 0."""
    return _received


def check() -> None:
    """Raise :class:`Stopped` if a signal came that was deferred, or whose exception something has caught."""
    if _received:
        raise Stopped


def reason() -> str:
    """Why work stops, as the first words of a message."""
    return f"Received {signal.Signals(_received).name}" if _received else "The time is up"


@contextmanager
def listening() -> Iterator[None]:
    """Answer the signals within the context by :class:`Stopped`, raised in the main thread.

    An error after a signal is taken for its consequence, and becomes :class:`Stopped` too, unless it says itself why
    work ended.
    A signal that the process was started to ignore (``nohup``) stays ignored. In other threads nothing is done.
    """
    global _received
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _received = 0
    terminals = [descriptor for descriptor in (1, 2) if os.isatty(descriptor)]
    first = 0.0  # when the first signal came

    def answer(number: int, _: object) -> None:
        nonlocal first
        global _received
        if _received:
            if time.monotonic() - first > BURST:
                os._exit(128 + number)
            return
        _received, first = number, time.monotonic()
        _leave_dead(terminals)
        if not _deferring:
            raise Stopped

    before = {each: signal.getsignal(each) for each in SIGNALS}
    for each, former in before.items():
        if former is not signal.SIG_IGN:
            signal.signal(each, answer)
    try:
        yield
    except (OutOfTime, StoreError, ProcessLost):
        raise
    except Exception as error:  # a signal in the middle of an import leaves modules that are not complete
        if _received:
            raise Stopped from error
        raise
    finally:
        _received = 0
        for each, former in before.items():
            signal.signal(each, former)


@contextmanager
def contained(what: str) -> Iterator[None]:
    """Make a failure of what code of a plugin raises to end the program, such as SystemExit.

    Args:
        what: the subject of the message.

    Raises:
        PluginError: in place of what is neither an ``Exception``, nor an interrupt of the user's.
    """
    try:
        yield
    except (Exception, *INTERRUPTS):
        raise
    except BaseException as error:
        raise PluginError(
            f"{what} ends the program ({error_text(error)}). Raise an error that says what is wrong."
        ) from error


@contextmanager
def deferred() -> Iterator[None]:
    """Only take note of a signal within the context: what runs in it asks :func:`received` and stops by itself."""
    global _deferring
    _deferring += 1
    try:
        yield
    finally:
        _deferring -= 1


def _leave_dead(terminals: list[int]) -> None:
    """Write no more to a terminal that was closed: each line would be an error in the middle of a checkpoint."""
    for descriptor in terminals:
        try:
            termios.tcgetattr(descriptor)
        except termios.error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
