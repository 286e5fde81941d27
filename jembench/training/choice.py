"""The model that a training leaves: the best so far, or the last."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from jembench.store import checkpoint, tensors
from jembench.store.fits import WEIGHTS, weights_digest
from jembench.training.loop import Trainer

_MODEL, _SAMPLER = WEIGHTS


class SelectedWeights(NamedTuple):
    """The measurement that a checkpoint is selected by."""

    label: str
    value: float
    better: Literal["higher", "lower"]
    # of the chains that were measured, if the recipe selects among chain lengths
    steps: int | None = None


class Best(NamedTuple):
    """The chosen model so far, as checkpoints keep it."""

    iteration: int
    accuracy: float | None  # on the validation images
    rank: float | None  # the measurement that selects, higher is better; None: there is none
    selected: SelectedWeights | None
    weights: str  # digest of the files


class Choice:
    """The choice of the model: by ``select``, by accuracy, or else the last.

    Args:
        trainer: of the models.
        folder: of the fit, where the chosen model and its chains are kept.
        select: measures the trainer's model; None: accuracy on the validation images.

    Attributes:
        best: the chosen model; None: there is none yet.
    """

    def __init__(
        self, trainer: Trainer, folder: Path, select: Callable[[], SelectedWeights] | None
    ) -> None:
        self.trainer, self.folder, self.select = trainer, folder, select
        self.best: Best | None = None

    def consider(self) -> dict[str, float]:
        """Validate, and keep the model if it is the best so far.

        Without validation images the last model is kept.

        Returns:
            the accuracy and NLL on the validation images, and the measurement that selects, for the
            history.
        """
        trainer = self.trainer
        validation = trainer.validate()
        selected = self.select() if self.select else None
        if not validation and not selected and trainer.iteration < trainer.iterations:
            return {}  # only the last model is kept
        accuracy = rank = validation.get("accuracy")
        if selected:
            validation[selected.label] = rank = selected.value
            if selected.better == "lower":
                rank = -rank
        if self._is_best(rank):
            checkpoint.write(self.folder / _SAMPLER, trainer.chains.state_dict())
            checkpoint.write(self.folder / _MODEL, trainer.weights(), age=trainer.iteration)
            digest = weights_digest(self.folder)
            self.best = Best(trainer.iteration, accuracy, rank, selected, digest)
        return {f"validation_{name}": value for name, value in validation.items()}

    def _is_best(self, rank: float | None) -> bool:
        if self.best is None or self.best.rank is None or rank is None:
            return True
        return rank >= self.best.rank

    def is_removed(self) -> bool:
        """Return whether a file of the chosen model is missing."""
        return not all((self.folder / name).exists() for name in WEIGHTS)

    def check(self) -> None:
        """Check the files of the chosen model.

        Raises:
            CheckpointError: if one is damaged.
        """
        folder = self.folder
        remedy = f"Put a copy of the file back, or remove the folder {folder} to train again."
        for name in WEIGHTS:
            tensors.check(folder / name, remedy)

    def load_state_dict(self, state: Mapping[str, Any] | None) -> None:
        """Restore the choice of a checkpoint, whose state the trainer has loaded."""
        self.best = None
        if not state:
            return
        best = Best(**state)
        if weights_digest(self.folder) != best.weights:
            # choose anew: the model on disk was chosen on the way to divergence, or before a kill
            self.consider()
            return
        if best.selected:
            best = best._replace(selected=SelectedWeights(*best.selected))
        self.best = best
