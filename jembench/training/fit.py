"""From a trainer to a trained model on disk: checkpoints, the choice of the best one, resuming, and the guard.

A fit's folder holds the checkpoints to go on from (:mod:`jembench.training.generations`), ``model.safetensors`` and
``sampler.safetensors`` (the chosen model and its chains), the chains of the last epochs
(:mod:`jembench.training.snapshots`), ``history.csv``, ``energies.png``, and ``interventions.json`` if the guard had to
step in.
"""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from jembench import progress, stopping
from jembench.errors import Diverged, OutOfTime
from jembench.files import write_bytes
from jembench.interfaces import Event, EventKind, Stability
from jembench.progress import Phase
from jembench.store import checkpoint, tensors
from jembench.store.checkpoint import Writer
from jembench.training import epoch_grids, guard, snapshots
from jembench.training.generations import Generations
from jembench.training.guard import Divergence, Intervention, Starts
from jembench.training.interventions import INTERVENTIONS, read_interventions, write_interventions
from jembench.training.loop import Trainer
from jembench.training.picture import draw_energies
from jembench.training.processes import Controller

ANSWER = 2.0
"""Seconds of iterations after which training looks whether a signal asked it to end."""


class Fitted(NamedTuple):
    """What is known of a finished fit beside its weights."""

    iteration: int  # that the chosen weights are from
    validation_accuracy: float | None
    seconds: float  # spent in iterations, over all runs of the fit, abandoned ones included
    history: list[dict[str, float]]  # one row a window of ``log_every`` iterations
    interventions: list[Intervention]
    stability: Stability | None  # None: guard.mode was off


def train(
    trainer: Trainer,
    folder: Path,
    report: Callable[[Event], None] = lambda _: None,
    *,
    deadline: float | None = None,
    check: Callable[[], None] = lambda: None,
) -> Fitted:
    """Train to the end of the recipe's budget, from the folder's newest checkpoint if there is one.

    The model that is kept is the one of the highest validation accuracy, the latest of equals; without validation
    images, the last. On divergence the guard goes back to a good state and tries the recipe's remedies in turn, or only
    records it, if it is to watch.

    In a group this is what rank 0 does; the others :func:`~jembench.training.processes.serve`.

    Args:
        trainer: at its start.
        folder: where the fit lives.
        report: receives the ``window`` events of what was trained before, a ``training`` event, a ``window`` event
            after every window, and a ``diverged`` event for each intervention, or for the first divergence if nothing
            is repaired.
        deadline: when to stop, UTC in seconds since 1970, to be continued by the next call.
        check: called before anything is written; raises a StoreError if another process trains this fit now.

    Raises:
        Diverged: if the ladder of remedies has come to its end.
        OutOfTime: if the deadline has come, or a signal that asks to end; a checkpoint of that moment is on disk.
        StoreError: if a file cannot be written. The previous checkpoint is kept.
    """
    with (
        stopping.deferred(),
        Writer() as writer,
        Controller(trainer, trainer.group) as call_all,
        progress.phase("", trainer.iterations, "iterations") as shown,
    ):
        run = _Run(trainer, call_all, folder, report, check, writer, shown)
        run.resume()
        run.report_past()
        while trainer.iteration < trainer.iterations:
            before = trainer.iteration - run.done
            if not run.iterate():
                raise run.stopped()
            check()
            writer.check()
            wrong = run.judge()
            snapshot, picture = snapshots.due(trainer, before), epoch_grids.due(trainer, before)
            due = trainer.iteration % trainer.recipe.checkpoint_every == 0 or trainer.iteration == trainer.iterations
            stop = bool(stopping.received()) or (deadline is not None and time.time() >= deadline)
            finite = not (due or stop or snapshot or picture) or call_all("is_finite")
            if run.looks and not wrong and not finite:
                wrong = "a weight or a stored chain was not finite"
            if wrong and run.repair(wrong):
                continue
            if snapshot and finite:  # before any checkpoint, after which it would not be taken again
                snapshots.keep(folder, snapshot, trainer, call_all("chains"))
            if picture and finite:
                run.report_picture(epoch_grids.draw(folder, picture, trainer, call_all("chains")))
            if due:
                run.history[-1] |= run.choose()
            if due or stop:
                run.save()
            run.report_window()
            if stop and trainer.iteration < trainer.iterations:
                raise run.stopped()
        return run.finish()


@dataclass(slots=True)
class _Window:
    """The iterations since the last look at the losses."""

    learning_rate: float  # of the first
    rows: list[dict[str, float]] = field(default_factory=list)  # one an iteration
    seconds: float = 0.0
    starts: Starts | None = None  # after the last


class _Run:
    """A trainer on its way, and what is remembered of the way."""

    def __init__(
        self,
        trainer: Trainer,
        call_all: Controller,
        folder: Path,
        report: Callable[[Event], None],
        check: Callable[[], None],
        writer: Writer,
        shown: Phase,
    ) -> None:
        self.trainer = trainer
        self.call_all = call_all
        self.folder = folder
        self.report = report
        self.check = check
        self.writer = writer
        self.shown = shown
        self.generations = Generations(folder, writer)
        self.history: list[dict[str, float]] = []
        self.best: dict[str, Any] | None = None
        self.looks = trainer.recipe.guard.mode != "off"
        self.ladder = guard.remedies(trainer.recipe, chains=trainer.sampler is not None)
        self.interventions: list[Intervention] = []
        self.unrepaired: Divergence | None = None  # the first one, of a run that has no ladder
        self.window: _Window | None = None  # the one that has begun
        self.doubtful = False  # whether the newest checkpoint is
        self.pace = 1  # iterations between two looks for a signal

    # --- going on and going back ----------------------------------------------------------------------------------

    def resume(self) -> None:
        """Go on from the newest checkpoint; a run that is new, or whose chosen model was removed, writes its first.

        Raises:
            CheckpointError: if the chosen model or its chains are damaged.
        """
        state = self.generations.newest()
        chosen = [self.folder / name for name in (_MODEL, _SAMPLER)]
        if state is None or (state["best"] and not all(path.exists() for path in chosen)):
            self.generations.clear()
            (self.folder / INTERVENTIONS).unlink(missing_ok=True)
            state = self._state()
            self.generations.write_start(state)
            self.call_all("load_state_dict", state["trainer"])  # one start for all, however the model initialises
            return
        if state["best"]:
            for path in chosen:
                tensors.check(path, f"Put a copy of the file back, or remove the folder {self.folder} to train again.")
        self.interventions = read_interventions(self.folder)
        self.history = state["history"]
        self.unrepaired = Divergence(**seen) if (seen := state.get("unrepaired")) else None
        self._take(state)

    def _take(self, state: Mapping[str, Any]) -> None:
        """Go on from a state, with whatever remedy it does not know of yet."""
        self.call_all("load_state_dict", state["trainer"])
        self.doubtful = self.looks and guard.is_doubtful(state["history"])
        if window := state.get("window"):
            self.window = _Window(**{**window, "starts": window["starts"] and Starts(*window["starts"])})
        else:
            self.window = None
        if self.trainer.adjustment.seeds < len(self.interventions):
            self.call_all("adjust", guard.adjustment(self.interventions))
        self.best = state["best"]
        if self.best and checkpoint.age_of(self.folder / _MODEL) != self.best["iteration"]:
            self.best = None  # the model on disk was chosen on the way to divergence, or just before a kill
            self.choose()

    def repair(self, reason: str) -> bool:
        """Go back to a good state and apply the next remedy; without a ladder, record the first divergence.

        Where the newest state is doubtful, or has led to divergence more than once, it goes back to the one before.

        Returns:
            Whether training went back.

        Raises:
            Diverged: if no remedy is left.
        """
        found = Divergence(self.trainer.iteration, reason)
        if not self.ladder:
            if self.unrepaired is None:
                self.unrepaired = found
                self._report("diverged", found._asdict())
            return False
        self.report_window()
        if len(self.interventions) == len(self.ladder):
            self._give_up(reason)
        state = self.generations.newest()
        assert state is not None
        if guard.is_doubtful(state["history"]) or len(self.interventions) > state["trainer"]["adjustment"][0]:
            self.generations.drop_newest()
            state = self.generations.newest()
            assert state is not None
        back_to = state["trainer"]["iteration"]
        self.interventions.append(Intervention(*found, back_to, self.ladder[len(self.interventions)]))
        write_interventions(self.folder, self.interventions)
        self._take(state)
        self._report("diverged", self.interventions[-1]._asdict())
        return True

    def _give_up(self, reason: str) -> None:
        self.save_history()
        self.draw(f"diverged after {len(self.interventions)} interventions")
        tried = "; ".join(map(str, self.interventions))
        raise Diverged(
            f"Training diverged {Divergence(self.trainer.iteration, reason)}, and no remedy is left. It had been "
            f"repaired {tried}. The energies are in history.csv and energies.png of the fit's folder. Lower the "
            "learning rate (--set optimizer.learning_rate=...), take smaller or less noisy sampling steps (--set "
            "chains.sampler=...), or give the guard a longer ladder (--set guard.ladder=...)."
        )

    # --- a window and its end ------------------------------------------------------------------------------------

    @property
    def done(self) -> int:
        """Iterations of the window that has begun."""
        return len(self.window.rows) if self.window else 0

    def iterate(self) -> bool:
        """The iterations that are left of a window.

        Returns:
            False if a signal came in the middle: a checkpoint is then on disk, unless the state may be damaged.
        """
        trainer = self.trainer
        self.window = window = self.window or _Window(trainer.learning_rate)
        n = min(trainer.recipe.log_every, trainer.iterations - trainer.iteration + len(window.rows))
        while len(window.rows) < n:
            self.shown.done = trainer.iteration
            start = time.perf_counter()
            rows, window.starts, heard = self.call_all("window", min(n - len(window.rows), self.pace))
            seconds = time.perf_counter() - start
            window.rows += rows
            window.seconds += seconds
            self.pace = max(1, int(ANSWER * len(rows) / seconds))
            stopping.hear(heard)
            if stopping.received() and len(window.rows) < n:
                self.check()
                if not self.ladder or (not guard.verdict(window.rows, None) and self.call_all("is_finite")):
                    self.save()
                return False
        return True

    def judge(self) -> str | None:
        """Log the means of a complete window.

        Returns:
            What is wrong, if the guard finds something.
        """
        window, self.window = self.window, None
        assert window is not None
        rows, n = window.rows, len(window.rows)
        place = {"iteration": self.trainer.iteration, "iterations": n, "seconds": window.seconds / n}
        place |= {"attempt": len(self.interventions), "learning_rate": window.learning_rate}
        means = {name: sum(row[name] for row in rows) / n for name in rows[0]}
        starts = window.starts._asdict() if window.starts else {}
        self.history.append({**place, **means, **{f"{name}_start": value for name, value in starts.items()}})
        if not self.looks:
            return None
        if wrong := guard.verdict(rows, window.starts):
            return wrong
        if self.ladder and len(self.interventions) == len(self.ladder):
            return None  # without a remedy, a model that classifies is better than none; the record says how it ended
        return guard.lost_contact(self.history, ended=self.trainer.iteration == self.trainer.iterations)

    def report_past(self) -> None:
        """Send the windows of former runs, which a tracker may not have had, and that training goes on from there."""
        for row in self.history:
            self._report("window", row, int(row["iteration"]))
        self._report("training", {})

    def report_window(self) -> None:
        """Send the last row of the history."""
        self._report("window", dict(self.history[-1]))

    def report_picture(self, path: Path | None) -> None:
        """Send that a picture of the chains was drawn."""
        if path:
            self._report("picture", {"attempt": len(self.interventions)}, text=str(path))

    def _report(
        self, kind: EventKind, values: Mapping[str, float | str], done: int | None = None, text: str = ""
    ) -> None:
        done = self.trainer.iteration if done is None else done
        self.report(Event(kind=kind, done=done, total=self.trainer.iterations, values=values, text=text))

    def stopped(self) -> OutOfTime:
        """Why training ends before its end, once its checkpoint is on disk."""
        self.writer.wait()
        return OutOfTime(
            f"{stopping.reason()} after {self.trainer.iteration} of {self.trainer.iterations} iterations. "
            "The same command goes on from there."
        )

    def choose(self) -> dict[str, float]:
        """Validate, and keep the model if it is the best so far; without validation, the last.

        Returns:
            What validation found, for the history.
        """
        trainer = self.trainer
        self.writer.wait()  # at most one state is on its way to the disk
        validation = trainer.validate()
        if validation is None and trainer.iteration < trainer.iterations:
            return {}  # the last model will be chosen
        accuracy = validation.accuracy if validation else None
        if self.best is None or accuracy is None or accuracy >= self.best["accuracy"]:
            self.best = {"iteration": trainer.iteration, "accuracy": accuracy}
            iteration = trainer.iteration
            self.writer.write(self.call_all("chains"), lambda packed: packed.write(self.folder / _SAMPLER))
            self.writer.write(trainer.weights(), lambda packed: packed.write(self.folder / _MODEL, age=iteration))
        return {f"validation_{name}": value for name, value in validation._asdict().items()} if validation else {}

    def save(self) -> None:
        """Write a checkpoint; a doubtful one gives its place to the next, so that a good one is kept."""
        self.save_history()
        self.generations.write(self._state(), self.trainer.iteration, over_newest=self.doubtful)
        self.doubtful = self.looks and guard.is_doubtful(self.history)

    def finish(self) -> Fitted:
        """The result of the training."""
        assert self.best is not None
        self.generations.tidy()
        stability = self._stability() if self.looks else None
        diverged = stability is not None and stability.diverged_at is not None
        self.draw(f"first diverged at iteration {stability.diverged_at}" if stability and diverged else "")
        seconds = sum(row["seconds"] * row["iterations"] for row in self.history)
        return Fitted(
            self.best["iteration"], self.best["accuracy"], seconds, self.history, self.interventions, stability
        )

    def _stability(self) -> Stability:
        first = self.interventions[0] if self.interventions else self.unrepaired
        changed = guard.describe(self.trainer.adjustment, self.trainer.recipe, self.trainer.sampling_steps)
        away = guard.lost_contact(self.history, ended=True) if self.interventions else None
        return Stability(
            criterion=guard.CRITERION,
            iterations=self.trainer.iterations,
            diverged_at=first.iteration if first else None,
            reason=first.reason if first else "",
            remedies=tuple(intervention.remedy for intervention in self.interventions),
            ended_with=", ".join(filter(None, [changed, away])),
        )

    def _state(self) -> dict[str, Any]:
        state = {"trainer": self.call_all("state_dict"), "history": self.history, "best": self.best}
        state["unrepaired"] = self.unrepaired._asdict() if self.unrepaired else None
        return state | {"window": asdict(self.window) if self.window else None}

    def save_history(self) -> None:
        """Write the losses and energies so far, for human eyes."""
        write_bytes(self.folder / "history.csv", _as_csv(self.history).encode())

    def draw(self, title: str) -> None:
        """Draw the energies so far."""
        draw_energies(self.history, title, self.folder / "energies.png")


_MODEL, _SAMPLER = "model.safetensors", "sampler.safetensors"


def _as_csv(history: Sequence[Mapping[str, float]]) -> str:
    names = list(dict.fromkeys(name for row in history for name in row))
    stream = io.StringIO()
    writer = csv.DictWriter(stream, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(history)
    return stream.getvalue()
