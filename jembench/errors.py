"""Errors for users: one paragraph that says what was wrong, where, and how to fix it.

The command line prints them without a traceback (``--debug`` shows it). Everything else that is raised is a bug.
"""

from __future__ import annotations

import re
from collections.abc import Iterable


class JembenchError(Exception):
    """The base of all errors that a user can fix. ``exit_code`` is the exit code of the command line."""

    exit_code = 2


class SpecError(JembenchError):
    """A spec string, an option or a field of a file that is wrong."""


class PluginError(JembenchError):
    """A plugin that cannot be imported, or whose entry point is not what it must be."""


class Incompatible(PluginError):
    """A plugin that was written for another version of jembench's plugin interface."""


class Unavailable(JembenchError):
    """Something outside the program is missing: data, weights, a device. The text says how to get it."""


class NotApplicable(Unavailable):
    """A question that has no answer for this model or dataset, whatever is installed. It is not tried again."""


class StoreError(JembenchError):
    """The store cannot be read or written, or holds something that this version does not understand."""


class DamagedError(StoreError):
    """A file whose content is not what was written. The text names the file."""


class CheckpointError(JembenchError):
    """A checkpoint that is damaged or belongs to another model or recipe."""


class Diverged(JembenchError):
    """A fit that diverged, and for which no remedy is left."""

    exit_code = 1


class OutOfTime(JembenchError):
    """The time of ``--max-hours`` is up. The same command continues the work."""

    exit_code = 3


class ProcessLost(JembenchError):
    """One of the processes that train together has failed. The same command continues the work."""

    exit_code = 1


class WorkFailed(JembenchError):
    """Units of work that were not carried out: their workers failed, died or refused them."""

    exit_code = 1


class PartDone(JembenchError):
    """Not an error: one part of a metric was computed and kept, and the whole is measured elsewhere."""


class Remark(UserWarning):
    """A warning that says what was done: the command line prints it as a note."""


class Fallback(Remark):
    """Something was done in another way than usual. The results are the same."""


_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Text that is safe for a terminal, with escapes for characters that move the cursor or change the direction.

    Half characters (surrogates) are escaped too; line breaks and tabs stay. Texts from files may come from anywhere.
    """
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def error_text(error: BaseException) -> str:
    """Return the type of an error and its text, also if the ``__str__`` of a plugin's error raises."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return f"{type(error).__name__}: its text cannot be made"


def unknown(kind: str, asked: str, known: Iterable[str], list_command: str) -> SpecError:
    """The error for an unknown name, with the nearest three names and the command that lists all, if there is one."""
    import difflib  # most commands meet no unknown name

    names = sorted(known)
    nearest = difflib.get_close_matches(asked.lower(), names, n=3, cutoff=0.3)
    hint = f" Nearest: {', '.join(nearest)}." if nearest else ""
    everything = f" Known: {', '.join(names)}." if names else " There is none at all."
    more = f" `{list_command}` says what each one is." if list_command else ""
    return SpecError(f"There is no {kind} named {asked!r}.{hint}{everything}{more}")
