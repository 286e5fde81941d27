"""Signals that ask a process to end: SIGTERM and SIGHUP, which queues and closed terminals send.

The first one stops the work like ``--max-hours``: training writes a checkpoint first, everything else ends where it
is, or at the end of an import, which would leave a module that is not complete. A second one, a second or more after
the first, ends the process at once.
"""

from __future__ import annotations

import os
import signal
import sys
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

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

    def answer(number: int, frame: FrameType | None) -> None:
        global _received
        if _received:
            return
        _received = number
        _leave_dead(terminals)
        if importer := _importer(frame):
            sys.settrace(lambda *_: None)  # without it no frame is traced
            importer.f_trace = stop
        else:
            stop()

    def stop(*_: object) -> None:
        sys.settrace(None)
        if not _deferring:
            raise Stopped

    before = {each: signal.getsignal(each) for each in SIGNALS}
    for each, former in before.items():
        if former is not signal.SIG_IGN:
            signal.signal(each, answer)
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    former_descriptor = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    watch = threading.Thread(target=_end_at_the_second, args=(reading,), daemon=True)
    watch.start()
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
        signal.set_wakeup_fd(former_descriptor)
        for each, former in before.items():
            signal.signal(each, former)
        os.close(writing)
        watch.join()
        os.close(reading)


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


def _importer(frame: FrameType | None) -> FrameType | None:
    """The frame that has begun the outermost import of those that are under way in ``frame``; None if there is none."""
    found = None
    while frame:
        if frame.f_globals.get("__name__") == "importlib._bootstrap":
            found = frame.f_back
        frame = frame.f_back
    return found


def _end_at_the_second(reading: int) -> None:
    """End the process at a later signal, even while its main thread is in a long computation."""
    first = None
    while numbers := os.read(reading, 64):
        for number in numbers:
            if number not in SIGNALS:
                continue
            first = first or time.monotonic()
            if time.monotonic() - first > BURST:
                os._exit(128 + number)


def _leave_dead(terminals: list[int]) -> None:
    """Write no more to a terminal that was closed: each line would be an error in the middle of a checkpoint."""
    for descriptor in terminals:
        try:
            termios.tcgetattr(descriptor)
        except termios.error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
