"""The training of a model: checkpoints, selection, resuming and the guard.

A fit's folder holds the checkpoints to go on from (:mod:`jembench.training.checkpoints`),
``model.safetensors`` and ``sampler.safetensors`` (the chosen model and its chains), the chains of
the last epochs (:mod:`jembench.training.snapshots`), ``history.csv``, and ``interventions.json`` if
the guard had to step in.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from jembench import progress, stopping
from jembench.errors import OutOfTime
from jembench.interfaces import Event
from jembench.interfaces.evaluation import Stability
from jembench.progress import Phase
from jembench.training import guard, history, snapshots
from jembench.training.checkpoints import Checkpoints
from jembench.training.choice import Choice, SelectedWeights
from jembench.training.guard import Divergence, Intervention, Starts
from jembench.training.history import Window
from jembench.training.loop import Trainer
from jembench.training.repair import repair, resume
from jembench.training.run import TrainingRun

SIGNAL_INTERVAL = 2.0
"""Seconds of iterations between two checks for a signal that asks training to end."""


class Fitted(NamedTuple):
    """The record of a finished fit, without its weights."""

    iteration: int  # of the chosen weights
    validation_accuracy: float | None
    selected: SelectedWeights | None  # None: by accuracy
    seconds: float  # spent in logged iterations, over all runs of the fit, abandoned ones included
    history: list[dict[str, float]]  # one row a window of ``log_every`` iterations
    interventions: list[Intervention]
    stability: Stability | None  # None: guard.mode was off, or no energies were judged


def train(
    trainer: Trainer,
    folder: Path,
    report: Callable[[Event], None] = lambda _: None,
    *,
    deadline: float | None = None,
    check: Callable[[], None] = lambda: None,
    select: Callable[[], SelectedWeights] | None = None,
) -> Fitted:
    """Train to the end of the recipe's budget, from the newest checkpoint.

    The model with the best measurement of ``select`` is kept, or else the model with the highest
    validation accuracy, the latest of equals; without validation images, the last model. On
    divergence the guard goes back to a good state and applies the recipe's remedies in turn; with
    ``guard.mode = "watch"`` it only records the divergence.

    In a group of processes rank 0 calls this function, as
    :meth:`~jembench.training.processes.Group.leading`, and the others call
    :meth:`~jembench.training.processes.Group.follow`.

    Args:
        trainer: before its first iteration.
        folder: the folder of the fit.
        report: receives the ``window`` events of the iterations before the checkpoint, a
            ``progress`` event, a ``window`` event after every window, and a ``diverged`` event for
            each intervention, or for the first divergence if nothing is repaired.
        deadline: the time at which training stops, UTC in seconds since 1970; the next call
            continues.
        check: called before anything is written; raises a StoreError if another process trains this
            fit now.
        select: measures the trainer's model; None: the checkpoint is selected by accuracy.

    Raises:
        Diverged: if training diverges and no remedy is left.
        OutOfTime: at the deadline or after a signal that asks to end, once a checkpoint is on disk.
        StoreError: if a file cannot be written. The previous checkpoint is kept.
    """
    choice = Choice(trainer, folder, select)
    run = TrainingRun(trainer, folder, report, check, choice, Checkpoints(folder))
    with stopping.deferred(), progress.phase(guard.TRAINING, unit="iterations") as shown:
        resume(run)
        # a tracker may lack some windows; the others are repeated with equal values
        for row in run.history:
            run.send("window", row, int(row["iteration"]))
        shown.done, shown.total = trainer.iteration, trainer.iterations
        run.send("progress", {"unit": "iterations"}, text=guard.TRAINING)
        while trainer.iteration < trainer.iterations:
            _advance(run, shown, deadline)
        return _finish(run)


def _advance(run: TrainingRun, shown: Phase, deadline: float | None) -> None:
    """Train for a window, and write what is due.

    Raises:
        OutOfTime: as :func:`train`.
    """
    trainer = run.trainer
    wrong = _judge(run, *_window(run, shown))
    run.check()
    ended = trainer.iteration == trainer.iterations
    due = ended or trainer.iteration % trainer.recipe.checkpoint_every == 0
    snapshot = snapshots.due(trainer)
    late = deadline is not None and time.time() >= deadline
    stop = late or bool(stopping.received())

    # only a finite state is written
    finite = not (due or stop or snapshot) or trainer.is_finite()
    if run.guarded and not wrong and not finite:
        wrong = "a weight or a stored chain was not finite"
    if wrong and repair(run, wrong):
        return

    # before the checkpoint, since a resumed training would not take it again
    if snapshot and finite:
        snapshots.keep(run.folder, snapshot, trainer)
    if due:
        run.history[-1] |= run.choice.consider()
    if due or stop:
        run.save()
    run.send("window", dict(run.history[-1]))
    if stop and not ended:
        raise _stopped(trainer)


def _window(run: TrainingRun, shown: Phase) -> tuple[list[dict[str, float]], Starts | None]:
    """Run the window's iterations, and log their means.

    Returns:
        the losses of each iteration, and the energies of random starts after the last.

    Raises:
        OutOfTime: if a signal arrived within the window. A checkpoint is then on disk, unless the
            state has diverged, and the next run goes on within this window.
    """
    trainer, every = run.trainer, run.trainer.recipe.log_every
    end = min(trainer.iteration // every * every + every, trainer.iterations)
    window = run.window = run.window or Window(trainer.learning_rate())
    starts = None
    # a few iterations at a time, between which signals are answered
    while trainer.iteration < end:
        shown.done = trainer.iteration
        count = min(end - trainer.iteration, run.pace)
        begun = time.perf_counter()
        losses, starts = trainer.group.call(trainer.window, count)
        taken = time.perf_counter() - begun
        window.rows += losses
        window.seconds += taken
        run.pace = max(1, int(SIGNAL_INTERVAL * count / taken))
        if stopping.received() and trainer.iteration < end:
            run.check()
            if not run.ladder or (not guard.verdict(window.rows, None) and trainer.is_finite()):
                run.save()
            raise _stopped(trainer)
    run.window = None
    row = _row(run, window, starts)
    run.history.append(row)
    shown.text = f"{guard.TRAINING}, {history.in_words(row)}"
    return window.rows, starts


def _row(run: TrainingRun, window: Window, starts: Starts | None) -> dict[str, float]:
    """Return the row of the history for a finished window."""
    count = len(window.rows)
    row = {
        "iteration": run.trainer.iteration,
        "iterations": count,
        "seconds": window.seconds / count,
        "passes": run.trainer.passes,
        "attempt": len(run.interventions),
        "learning_rate": window.rate,
        **window.means(),
    }
    if starts:
        row |= {f"{name}_start": value for name, value in starts._asdict().items()}
    return row


def _judge(
    run: TrainingRun, rows: Sequence[Mapping[str, float]], starts: Starts | None
) -> str | None:
    """Return why the guard finds a window diverged, or None."""
    if not run.guarded:
        return None
    if wrong := guard.verdict(rows, starts):
        return wrong
    if run.ladder and len(run.interventions) == len(run.ladder):
        # without a remedy left, a model that only classifies is kept, and the record says so
        return None
    ended = run.trainer.iteration == run.trainer.iterations
    return guard.lost_contact(run.history, ended=ended, chains=run.has_chains)


def _stopped(trainer: Trainer) -> OutOfTime:
    """Return the error of a training that stops early.

    A checkpoint is on disk.
    """
    return OutOfTime(
        f"{stopping.reason()} after {trainer.iteration} of {trainer.iterations} iterations. "
        "The same command goes on from there."
    )


def _finish(run: TrainingRun) -> Fitted:
    best = run.choice.best
    assert best is not None
    run.checkpoints.tidy()
    return Fitted(
        iteration=best.iteration,
        validation_accuracy=best.accuracy,
        selected=best.selected,
        seconds=sum(row["seconds"] * row["iterations"] for row in run.history),
        history=run.history,
        interventions=run.interventions,
        stability=_stability(run),
    )


def _stability(run: TrainingRun) -> Stability | None:
    """Return the guard's record of stability; None if it judged nothing."""
    first: Divergence | Intervention | None = run.unrepaired
    if run.interventions:
        first = run.interventions[0]
    judged = first or guard.is_judged(run.history, chains=run.has_chains)
    if not (run.guarded and judged):
        return None
    trainer = run.trainer
    ending = [guard.describe(trainer.adjustment, trainer.recipe, trainer.sampling_steps)]
    if run.interventions:
        away = guard.lost_contact(run.history, ended=True, chains=run.has_chains)
        ending.append(away or "")
    return Stability(
        criterion=guard.CRITERION if run.has_chains else guard.GENERATED,
        iterations=trainer.iterations,
        diverged_at=first.iteration if first else None,
        reason=first.reason if first else "",
        remedies=tuple(intervention.remedy for intervention in run.interventions),
        ended_with=", ".join(filter(None, ending)),
    )
