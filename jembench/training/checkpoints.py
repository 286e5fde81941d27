"""A fit's checkpoints on disk: the start and the last two.

A kill or a full disk leaves the earlier checkpoints intact.
"""

import warnings
from pathlib import Path
from typing import Any

from jembench.errors import CheckpointError, Fallback
from jembench.store import checkpoint


class Checkpoints:
    """The states of a fit, in its folder.

    Two files are written in turn, so that the checkpoint before the newest is kept too: the state
    of a run that is about to diverge can look healthy, and a training that goes back to such a
    state diverges again. At most one of the two holds a doubtful state.
    """

    def __init__(self, folder: Path) -> None:
        self._turns = [folder / f"checkpoint-{turn}.safetensors" for turn in (0, 1)]
        self._start = folder / "checkpoint-start.safetensors"
        self._damaged: set[Path] = set()

    def begin(self, state: Any) -> None:
        """Remove all checkpoints, and keep the state before the first iteration.

        This state is kept until :meth:`tidy`.
        """
        for path in self._newest_first():
            path.unlink()
        checkpoint.write(self._start, state, placed=True)

    def write(self, state: Any, iteration: int, *, over_newest: bool = False) -> None:
        """Write a state over the older checkpoint, or over the newest.

        Raises:
            StoreError: if the state cannot be written. The earlier checkpoints are kept.
        """
        oldest, newest = sorted(self._turns, key=self._age)
        path = newest if over_newest else oldest
        checkpoint.write(path, state, age=iteration, placed=True)
        self._damaged.discard(path)

    def newest(self) -> Any | None:
        """Read the newest intact state; None if there is no file.

        A damaged file is skipped with a warning.

        Raises:
            CheckpointError: if there are files and all are damaged.
        """
        failures: list[CheckpointError] = []
        # damaged files first, so that the warning names them
        for path in sorted(self._newest_first(), key=lambda path: self._age(path) >= 0):
            try:
                remedy = f"Remove the folder {path.parent} to train the model again."
                state = checkpoint.read(path, remedy, placed=True)
            except CheckpointError as error:
                failures.append(error)
                self._damaged.add(path)
                continue
            for failure in failures:
                why = str(failure).partition(" Remove the folder")[0]
                warnings.warn(
                    f"{why} The training goes on from {path.name}.", Fallback, stacklevel=2
                )
            return state
        if failures:
            raise failures[0]
        return None

    def drop_newest(self) -> None:
        """Remove the newest checkpoint, if there is another checkpoint."""
        newest, *others = self._newest_first()
        if others:
            newest.unlink()

    def tidy(self) -> None:
        """Remove all checkpoints but the newest, at the end of a fit."""
        for path in self._newest_first()[1:]:
            path.unlink()

    def _newest_first(self) -> list[Path]:
        turns = sorted(self._turns, key=self._age, reverse=True)
        return [path for path in (*turns, self._start) if path.exists()]

    def _age(self, path: Path) -> int:
        """Return the iteration of a state; -1: the file is damaged; -2: there is no file."""
        if not path.exists():
            return -2
        return -1 if path in self._damaged else checkpoint.age_of(path)
