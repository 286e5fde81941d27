"""Errors for users: one paragraph that says what is wrong, where, and how to fix it.

The command line prints them without a traceback (``--debug`` shows it). Any other exception is a
bug.
"""

import re
from collections.abc import Iterable


class JembenchError(Exception):
    """The base class of errors that a user can fix.

    ``exit_code`` is the exit code of the command line.
    """

    exit_code = 2

    def __str__(self) -> str:
        """Return the text, safe for a terminal: it may quote names and contents of files."""
        return printable(super().__str__())


class SpecError(JembenchError):
    """A wrong spec string, option or field of a file."""


class PluginError(JembenchError):
    """A plugin that cannot be imported, or whose entry point is invalid."""


class Incompatible(PluginError):
    """A plugin that was written for another version of jembench's plugin interface."""


class Unavailable(JembenchError):
    """A missing resource: data, weights, a device. The text says how to get it."""


class NotApplicable(Unavailable):
    """A metric that is not defined for this model or dataset.

    The metric is not tried again, whatever is installed.
    """


class StoreError(JembenchError):
    """A store that cannot be read or written, or whose content this version does not support."""


class DamagedError(StoreError):
    """A file whose content has changed since it was written. The text names the file."""


class CheckpointError(JembenchError):
    """A checkpoint that is damaged or belongs to another model or recipe."""


class Diverged(JembenchError):
    """A fit that diverged, and for which no remedy is left."""

    exit_code = 1


class OutOfTime(JembenchError):
    """The end of the time of ``--max-hours``. The same command continues the work."""

    exit_code = 3


class ProcessLost(JembenchError):
    """The failure of one process of a joint training. The same command resumes the training."""

    exit_code = 1


class WorkFailed(JembenchError):
    """Units of work that were not carried out: their workers failed, died or refused them."""

    exit_code = 1


class PartDone(JembenchError):
    """The end of one share of a metric, which is stored; not an error.

    The whole metric is measured elsewhere.
    """


class Remark(UserWarning):
    """A warning about a decision of the program, which the command line prints as a note."""


class Fallback(Remark):
    """The use of a slower method than usual, with the same results."""


_UNSAFE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    """Escape characters that move a terminal's cursor or change the text's direction.

    Surrogates are escaped too; line breaks and tabs are kept. Use it for texts from files, which
    may be hostile.
    """
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def error_text(error: BaseException) -> str:
    """Return the type and text of an error, even if its own ``__str__`` raises."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return f"{type(error).__name__}: its text cannot be made"


def unknown(kind: str, asked: str, known: Iterable[str], list_command: str) -> SpecError:
    """Return the error for an unknown name, with the nearest three names.

    The error names ``list_command``, which lists all names, if it is not empty.
    """
    import difflib  # imported here, since few commands need it

    names = sorted(filter(None, known))
    nearest = difflib.get_close_matches(asked.lower(), names, n=3, cutoff=0.3)
    hint = f" Nearest: {', '.join(nearest)}." if nearest else ""
    everything = f" Known: {', '.join(names)}." if names else " There is none at all."
    more = f" `{list_command}` says what each one is." if list_command else ""
    shown = asked if len(asked) <= 200 else f"{asked[:200]}..."
    return SpecError(f"There is no {kind} named {shown!r}.{hint}{everything}{more}")
