"""Runs of TensorBoard."""

from pathlib import Path
from typing import Any

from jembench.trackers.base import About, Numbers


class TensorBoardRun:
    """A folder of event files, whose results are metrics of HParams too.

    Args:
        folder: the folder of all runs.
        name: of the run's folder.
        about: the hyperparameters.
    """

    def __init__(self, folder: str, name: str, about: About) -> None:
        from torch.utils.tensorboard import SummaryWriter  # imports PyTorch

        self._about = about
        self._results: dict[str, float] = {}
        self._writer: Any = SummaryWriter(str(Path(folder) / name))

    def numbers(self, values: Numbers, iteration: int) -> None:
        """Write scalars."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, iteration)
        self._writer.flush()

    def results(self, values: Numbers, iteration: int) -> None:
        """Write scalars, and keep them for HParams."""
        self._results |= values
        self.numbers(values, iteration)

    def text(self, name: str, text: str, iteration: int) -> None:
        """Write a text."""
        self._writer.add_text(name, text, iteration)
        self._writer.flush()

    def close(self) -> None:
        """Write the row of HParams."""
        from torch.utils.tensorboard.summary import hparams

        for summary in hparams(dict(self._about), self._results):  # type: ignore[no-untyped-call]
            self._writer.file_writer.add_summary(summary)
        self._writer.close()
