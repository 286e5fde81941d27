"""What a trained model has said of images, kept: a metric with another option needs no pass through the network.

One file holds what is known of one set of images, under the identity of the fit, the content of its weights and of the
images. So it cannot outlive any of them: other code, weights or pixels are looked up under another name.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from jembench.errors import CheckpointError, Fallback
from jembench.files import is_taken
from jembench.store import checkpoint


class Memory:
    """The readings of one trained model, in a folder of its own (:meth:`jembench.store.store.Store.readings_of`)."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def recall(self, name: str) -> dict[str, Tensor]:
        """What is kept under a name; a damaged file gives a warning and nothing."""
        path = self._path(name)
        try:
            return dict(checkpoint.read(path, "The model is asked again.")) if path.exists() else {}
        except (CheckpointError, TypeError, ValueError) as error:
            warnings.warn(str(error), Fallback, stacklevel=2)
            return {}

    def keep(self, name: str, values: Mapping[str, Tensor]) -> None:
        """Keep tensors under a name, in place of what was there; not where something other than a file lies.

        Raises:
            StoreError: if they cannot be written.
        """
        path = self._path(name)
        if not is_taken(path):
            checkpoint.write(path, dict(values))

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.safetensors"
