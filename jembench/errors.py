"""Errors meant for the user: one paragraph that says what was wrong, where, and how to mend it.

The command line prints them without a traceback (``--debug`` shows it). Everything else that is raised is a bug.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable


class JembenchError(Exception):
    """The base of every error that a user can mend. ``exit_code`` is what the command line exits with."""

    exit_code = 2


class SpecError(JembenchError):
    """A spec string, an option or a recipe field that does not say what can be done."""


class PluginError(JembenchError):
    """A plugin that cannot be imported, or does not give what its entry point promises."""


class Incompatible(PluginError):
    """A plugin that was written for another version of jembench's plugin interface."""


class Unavailable(JembenchError):
    """Something outside the program is missing: data, weights, a device. The text says how to get it."""


class NotApplicable(Unavailable):
    """What was asked means nothing here, and nothing outside the program can change that: it is not tried again."""


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
    """``--max-hours`` are over. Nothing is wrong: the same command goes on."""

    exit_code = 3


class ProcessLost(JembenchError):
    """Of the processes that train together, one has failed or gone. The same command goes on."""

    exit_code = 1


class Fallback(UserWarning):
    """Something was done in another way than usual. Said once; the results are the same."""


_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Text for a terminal: what would move the cursor, or turn the direction of reading, is shown as an escape.

    So is half a character, which no terminal can show. Line breaks and tabs stay. Texts out of files may have been
    written by anybody.
    """
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def unknown(kind: str, asked: str, known: Iterable[str], list_command: str) -> SpecError:
    """The error for a name that nothing answers to: the nearest three names and the command that lists all, if any."""
    names = sorted(known)
    nearest = difflib.get_close_matches(asked.lower(), names, n=3, cutoff=0.3)
    hint = f" Nearest: {', '.join(nearest)}." if nearest else ""
    everything = f" Known: {', '.join(names)}." if names else " There is none at all."
    more = f" `{list_command}` says what each one is." if list_command else ""
    return SpecError(f"There is no {kind} named {asked!r}.{hint}{everything}{more}")
