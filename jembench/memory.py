"""What a trained model has said of images, kept: a metric with another option needs no pass through the network.

One file holds what is known of one set of images, under the identity of the fit, the content of its weights and of the
images. So it cannot outlive any of them: other code, weights or pixels are looked up under another name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from jembench.errors import CheckpointError
from jembench.training import checkpoint


class Memory:
    """The readings of one trained model.

    Args:
        folder: where the readings of all models are kept.
        fit_id: of the fit, which its code is part of.
        weights: the files that make the model what it is.
    """

    def __init__(self, folder: Path, fit_id: str, weights: Sequence[Path]) -> None:
        digest = hashlib.sha256(fit_id.encode())
        for path in weights:
            with path.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
        self._folder = folder / digest.hexdigest()[:16]

    def recall(self, name: str) -> dict[str, Tensor]:
        """What is kept under a name; a damaged file is as good as none."""
        path = self._path(name)
        try:
            return dict(checkpoint.read(path)) if path.exists() else {}
        except (CheckpointError, TypeError, ValueError):
            return {}

    def keep(self, name: str, values: Mapping[str, Tensor]) -> None:
        """Keep tensors under a name, in place of what was there.

        Raises:
            StoreError: if they cannot be written.
        """
        checkpoint.write(self._path(name), dict(values))

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.safetensors"
