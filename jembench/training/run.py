"""The state of one call of a fit's training, which its steps share."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from jembench.experiment.recipe import Remedy
from jembench.interfaces import Event
from jembench.interfaces.running import EventKind
from jembench.training import guard, history
from jembench.training.checkpoints import Checkpoints
from jembench.training.choice import Choice
from jembench.training.guard import Divergence, Intervention
from jembench.training.history import Window
from jembench.training.loop import Trainer


@dataclass
class TrainingRun:
    """The state of one call of :func:`jembench.training.fit.train`."""

    trainer: Trainer
    folder: Path
    report: Callable[[Event], None]
    check: Callable[[], None]
    choice: Choice
    checkpoints: Checkpoints
    history: list[dict[str, float]] = field(default_factory=list)
    interventions: list[Intervention] = field(default_factory=list)
    unrepaired: Divergence | None = None  # the first divergence, where the guard only watches
    doubtful: bool = False  # whether the newest checkpoint is doubtful, see guard.is_doubtful
    window: Window | None = None  # the window that has begun, if any
    pace: int = 1  # iterations between two checks for a signal

    @property
    def has_chains(self) -> bool:
        """True if chains draw the samples of the loss."""
        return self.trainer.chains.sampler is not None

    @property
    def guarded(self) -> bool:
        """True if the guard watches."""
        return self.trainer.recipe.guard.mode != "off"

    @cached_property
    def ladder(self) -> tuple[Remedy, ...]:
        """The remedies to try in turn."""
        return guard.remedies(self.trainer.recipe, chains=self.has_chains)

    def send(
        self,
        kind: EventKind,
        values: Mapping[str, float | str],
        done: int | None = None,
        text: str = "",
    ) -> None:
        """Report an event."""
        if done is None:
            done = self.trainer.iteration
        total = self.trainer.iterations
        event = Event(kind=kind, done=done, total=total, values=values, text=text)
        self.report(event)

    def save(self) -> None:
        """Write a checkpoint, in place of a doubtful newest one."""
        history.write(self.folder, self.history)
        self.checkpoints.write(self.state(), self.trainer.iteration, over_newest=self.doubtful)
        self.note_doubt(self.history)

    def note_doubt(self, rows: list[dict[str, float]]) -> None:
        """Note whether the newest checkpoint is doubtful, by its history."""
        self.doubtful = self.guarded and guard.is_doubtful(rows, chains=self.has_chains)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        best = self.choice.best
        return {
            "trainer": self.trainer.state_dict(),
            "history": self.history,
            "best": best._asdict() if best else None,
            "unrepaired": list(self.unrepaired or ()),
            "window": asdict(self.window) if self.window else None,
        }
