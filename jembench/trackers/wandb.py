"""One fit as a run of Weights & Biases."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any


class WandbRun:
    """A run whose steps are iterations; a fit that goes on goes on under the same id.

    Args:
        project: its name.
        folder: where the folder ``wandb`` lies.
        mode: online or offline; "": what WANDB_MODE says, else offline.
        name: of the run.
        about: its configuration.
    """

    def __init__(self, project: str, folder: str, mode: str, name: str, about: Mapping[str, str]) -> None:
        import wandb

        known: Any = mode or os.environ.get("WANDB_MODE", "offline")
        self._run: Any = wandb.init(
            project=project,
            dir=folder,
            mode=known,
            name=name,
            id=f"{about['id']}-{about['attempt']}",
            config=dict(about),
            resume="allow",
            reinit="create_new",
            settings=wandb.Settings(silent=True, console="off"),
        )

    def numbers(self, values: Mapping[str, float], iteration: int) -> None:
        """Log numbers."""
        self._run.log(dict(values), step=iteration)

    def results(self, values: Mapping[str, float], iteration: int) -> None:
        """Write them into the summary."""
        self._run.summary.update(dict(values))

    def text(self, name: str, text: str, iteration: int) -> None:
        """Keep a text in the summary."""
        self._run.summary[f"{name}/{iteration}" if iteration else name] = text

    def close(self) -> None:
        """Write what is left."""
        self._run.finish()
