"""Settings that apply to a whole process, and their restoration after a plugin's code."""

import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.backends import cudnn

from jembench.errors import Remark
from jembench.stopping import SIGNALS, contained


class Setting(NamedTuple):
    """A setting of PyTorch, Python or the process."""

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], object]
    standard: Any = None  # the value while a plugin's code runs; None: what the user has set


def _read_precision() -> str:
    with suppress(RuntimeError):  # not readable if set by PyTorch's newer functions
        return torch.get_float32_matmul_precision()
    return "mixed"


def _write_device(device: torch.device) -> None:
    torch.set_default_device(None if device.type == "cpu" else device)  # None has no cost per call


def _read_folder() -> str:
    with suppress(OSError):  # the folder was removed
        return os.getcwd()  # noqa: PTH109
    return ""


def _write_folder(folder: str) -> None:
    with suppress(OSError):
        os.chdir(folder)


def _read_umask() -> int:
    mask = os.umask(0o077)  # the only way to read it
    os.umask(mask)
    return mask


_VARIABLES = frozenset(os.environ)


def _read_variables() -> dict[str, str]:
    """Return the environment variables that the process began with, and jembench's own."""
    variables = {}
    for name, value in os.environ.items():
        if name in _VARIABLES or name.startswith("JEMBENCH_"):
            variables[name] = value
    return variables


def _write_variables(values: dict[str, str]) -> None:
    for name in _read_variables().keys() - values.keys():
        del os.environ[name]
    os.environ.update(values)


_SIGNALS = (signal.SIGINT, *SIGNALS)


def _read_handlers() -> list[Any]:
    return list(map(signal.getsignal, _SIGNALS))


def _write_handlers(handlers: list[Any]) -> None:
    for number, handler in zip(_SIGNALS, handlers, strict=True):
        # fails in another thread, or for a handler that is not Python's
        with suppress(ValueError, TypeError):
            signal.signal(number, handler)


_DESCRIPTORS = {"stdout": 1, "stderr": 2}


def _read_outputs() -> list[Any]:
    return [(stream, stream is None or stream.closed) for stream in (sys.stdout, sys.stderr)]


def _write_outputs(outputs: list[Any]) -> None:
    """Set stdout and stderr; one that was closed meanwhile is opened again."""
    for name, (stream, was_closed) in zip(_DESCRIPTORS, outputs, strict=True):
        if stream is not None and stream.closed and not was_closed:
            first, number = f"__{name}__", _DESCRIPTORS[name]
            if getattr(sys, first) is stream:
                setattr(sys, first, open(number, "w", closefd=False))  # noqa: SIM115
            stream = getattr(sys, first)
        setattr(sys, name, stream)


def _write_path(path: list[str]) -> None:
    sys.path[:] = path


SETTINGS = (
    Setting("the current folder", _read_folder, _write_folder),
    Setting("the umask", _read_umask, os.umask),
    Setting("environment variables", _read_variables, _write_variables),
    Setting("handlers of signals", _read_handlers, _write_handlers),
    Setting("sys.path", lambda: list(sys.path), _write_path),
    Setting("stdout or stderr", _read_outputs, _write_outputs),
    Setting("the grad mode", torch.is_grad_enabled, torch.set_grad_enabled, standard=True),
    Setting("the default dtype", torch.get_default_dtype, torch.set_default_dtype, torch.float32),
    Setting("the default device", torch.get_default_device, _write_device, torch.device("cpu")),
    Setting(
        "the precision of float32 matrix products",
        _read_precision,
        torch.set_float32_matmul_precision,
    ),
    Setting("the number of threads", torch.get_num_threads, torch.set_num_threads),
    Setting(
        "deterministic algorithms",
        torch.are_deterministic_algorithms_enabled,
        torch.use_deterministic_algorithms,
    ),
    Setting(
        "cuDNN's TF32", partial(getattr, cudnn, "allow_tf32"), partial(setattr, cudnn, "allow_tf32")
    ),
    Setting(
        "cuDNN's benchmark",
        partial(getattr, cudnn, "benchmark"),
        partial(setattr, cudnn, "benchmark"),
    ),
)


@contextmanager
def isolated(what: str, note: Callable[[str], object] | None = None) -> Iterator[None]:
    """Run a plugin's code under the standard settings, then restore the user's settings.

    Args:
        what: the subject of messages: "The factory of jem".
        note: called with a sentence if the code left settings changed; by default a warning is
            issued.

    Raises:
        PluginError: if the code raises a ``BaseException`` that is no ``Exception``, such as
            SystemExit.
    """
    before = [setting.read() for setting in SETTINGS]
    within = list(before)
    for place, setting in enumerate(SETTINGS):
        if setting.standard is not None:
            within[place] = setting.standard
    _write(within)
    try:
        with contained(what):
            yield
    finally:
        if changed := _write(within):
            text = (
                f"{what} left {', '.join(changed)} changed. jembench restored this, and no other "
                "result changes."
            )
            if note:
                note(text)
            else:
                warnings.warn(text, Remark, stacklevel=3)
        _write(before)


def _write(values: list[Any]) -> list[str]:
    """Write the settings that have other values, and return their names."""
    pairs = zip(SETTINGS, values, strict=True)
    changed = [(setting, value) for setting, value in pairs if setting.read() != value]
    for setting, value in changed:
        setting.write(value)
    return [setting.name for setting, _ in changed]
