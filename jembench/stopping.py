"""Signals that ask a process to end: SIGTERM and SIGHUP, which queues and closed terminals send.

The first signal stops the work like ``--max-hours``: training writes a checkpoint first, other work
ends at once. A second signal, more than a second after the first, ends the process at once.
"""

import os
import signal
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from jembench.errors import OutOfTime, PluginError, ProcessLost, StoreError, error_text

SIGNALS = (signal.SIGTERM, signal.SIGHUP)

BURST = 1.0
"""Seconds within which signals count as one: a shell and the kernel both send SIGHUP, srun repeats
SIGTERM.
"""

_leave = os._exit

_received = 0  # number of the first signal; 0: none
_interrupted: bool | None = None  # whether SIGINT was received; None: nothing listens to it
_deferring = 0  # number of open contexts of deferred()


class Stopped(BaseException):
    """The request of a signal to end the process.

    It is no ``Exception``, so that ``except Exception`` ignores it.
    """

    def __init__(self) -> None:
        super().__init__(f"{reason()}.")


def received() -> int:
    """Return the number of the first signal that asked this process to end; 0 if there was none."""
    return _received


def check() -> None:
    """Raise :class:`Stopped` if a signal was received.

    The signal may have been deferred, or its exception caught.
    """
    if _received:
        raise Stopped


def is_request(error: BaseException) -> bool:
    """Return whether an exception is a signal's request, not raised by a plugin."""
    return isinstance(error, Stopped) or (
        isinstance(error, KeyboardInterrupt) and _interrupted is not False
    )


def reason() -> str:
    """Return the reason why work stops, as the first words of a message."""
    return f"Received {signal.Signals(_received).name}" if _received else "The time is up"


@contextmanager
def listening() -> Iterator[None]:
    """Raise :class:`Stopped` in the main thread at a signal within the context.

    An error after a signal counts as the signal's consequence and becomes :class:`Stopped` too,
    unless the error's message says why work ended. A signal that the process ignores from its start
    (``nohup``) stays ignored. In other threads the context has no effect.

    ``os._exit`` raises SystemExit within the context, so that a plugin cannot end the process as if
    the command had done its work.
    """
    global _received, _interrupted
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _received = 0
    terminals = [descriptor for descriptor in (1, 2) if os.isatty(descriptor)]
    first = 0.0  # time of the first signal

    def answer(number: int, _: object) -> None:
        nonlocal first
        global _received
        if _received:
            if time.monotonic() - first > BURST:
                _leave(128 + number)
            return
        _received, first = number, time.monotonic()
        for descriptor in terminals:
            try:
                termios.tcgetattr(descriptor)
            except termios.error:  # closed: each line written would raise an error
                os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
        if not _deferring:
            raise Stopped

    def interrupt(number: int, frame: FrameType | None) -> None:
        global _interrupted
        _interrupted = True
        signal.default_int_handler(number, frame)

    process = os.getpid()

    def refuse(status: int) -> NoReturn:
        if os.getpid() != process:  # a forked process
            _leave(status)
        raise SystemExit(status)

    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number, former in before.items():
        if former is not signal.SIG_IGN:
            signal.signal(number, answer)
    of_interrupts = signal.getsignal(signal.SIGINT)
    if of_interrupts is signal.default_int_handler:
        before[signal.SIGINT] = signal.signal(signal.SIGINT, interrupt)
    # SIG_IGN: in the background of a script
    if of_interrupts in (signal.default_int_handler, signal.SIG_IGN):
        _interrupted = False
    os._exit = refuse
    try:
        yield
    except (OutOfTime, StoreError, ProcessLost):
        raise
    except Exception as error:  # also of an import that a signal interrupted
        if _received:
            raise Stopped from error
        raise
    finally:
        os._exit = _leave
        _received, _interrupted = 0, None
        for number, former in before.items():
            signal.signal(number, former)


@contextmanager
def contained(what: str) -> Iterator[None]:
    """Convert a plugin's attempt to end the program to an error.

    SystemExit is such an attempt.

    Args:
        what: the subject of the message.

    Raises:
        PluginError: instead of a ``BaseException`` that is neither an ``Exception`` nor a request
            of the user or a signal to stop.
    """
    try:
        yield
    except Exception:
        raise
    except BaseException as error:
        if is_request(error):
            raise
        raise PluginError(
            f"{what} ends the program ({error_text(error)}). Raise an error that says what is "
            "wrong."
        ) from error


@contextmanager
def deferred() -> Iterator[None]:
    """Only record signals within the context.

    Code in the context calls :func:`received`, and stops by itself.
    """
    global _deferring
    _deferring += 1
    try:
        yield
    finally:
        _deferring -= 1
