"""Runs of Weights & Biases."""

import os
from typing import Any

from jembench.trackers.base import About, Numbers


class WandbRun:
    """A run with iterations as steps, which a resumed fit continues.

    Args:
        project: the name of the project.
        folder: the parent of the folder ``wandb``.
        mode: online or offline; "": the value of WANDB_MODE, or else offline.
        name: of the run.
        about: the configuration of the run.
    """

    def __init__(self, project: str, folder: str, mode: str, name: str, about: About) -> None:
        import wandb

        chosen: Any = mode or os.environ.get("WANDB_MODE", "offline")
        self._run: Any = wandb.init(
            project=project,
            dir=folder,
            mode=chosen,
            name=name,
            id=f"{about['id']}-{about['attempt']}",
            config=dict(about),
            resume="allow",
            reinit="create_new",
            settings=wandb.Settings(silent=True, console="off"),
        )

    def numbers(self, values: Numbers, iteration: int) -> None:
        """Log numbers."""
        self._run.log(dict(values), step=iteration)

    def results(self, values: Numbers, iteration: int) -> None:
        """Write results to the summary."""
        self._run.summary.update(dict(values))

    def text(self, name: str, text: str, iteration: int) -> None:
        """Write a text to the summary."""
        if iteration:
            name = f"{name}/{iteration}"
        self._run.summary[name] = text

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()
