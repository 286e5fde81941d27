"""The training of a model: checkpoints, selection, resuming and the guard.

A fit's folder holds the checkpoints to go on from (:mod:`jembench.training.checkpoints`),
``model.safetensors`` and ``sampler.safetensors`` (the chosen model and its chains), the chains of
the last epochs (:mod:`jembench.training.snapshots`), ``history.csv``, and ``interventions.json`` if
the guard had to step in.
"""

import csv
import io
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from jembench import progress, stopping
from jembench.errors import CheckpointError, DamagedError, Diverged, OutOfTime
from jembench.experiment.recipe import Remedy
from jembench.files import write_atomically
from jembench.interfaces import Event
from jembench.interfaces.evaluation import Stability
from jembench.interfaces.running import EventKind
from jembench.progress import Phase
from jembench.store import checkpoint, records, tensors
from jembench.store.fits import HISTORY, INTERVENTIONS, WEIGHTS, weights_digest
from jembench.training import guard, snapshots
from jembench.training.checkpoints import Checkpoints
from jembench.training.guard import Divergence, Intervention, Starts
from jembench.training.loop import Trainer

SIGNAL_INTERVAL = 2.0
"""Seconds of iterations between two checks for a signal that asks training to end."""

LOSSES = {
    "loss": "loss",
    "energy_data": "E(data)",
    "energy_samples": "E(samples)",
    "joint_energy_data": "E(data, y)",
    "joint_energy_samples": "E(samples, y)",
}
"""Columns of the history that stand beside the progress, with their words."""

_MODEL, _SAMPLER = WEIGHTS


class Selected(NamedTuple):
    """The measurement that a checkpoint is selected by."""

    label: str
    value: float
    better: Literal["higher", "lower"]
    # of the chains that were measured, if the recipe selects among lengths
    steps: int | None = None


class Fitted(NamedTuple):
    """The record of a finished fit, without its weights."""

    iteration: int  # of the chosen weights
    validation_accuracy: float | None
    selected: Selected | None  # None: by accuracy
    seconds: float  # spent in logged iterations, over all runs of the fit, abandoned ones included
    history: list[dict[str, float]]  # one row a window of ``log_every`` iterations
    interventions: list[Intervention]
    stability: Stability | None  # None: guard.mode was off, or no energies were judged


class _Best(NamedTuple):
    """The chosen model so far, as checkpoints keep it."""

    iteration: int
    accuracy: float | None  # on the validation images
    rank: float | None  # the measurement that selects, higher is better; None: there is none
    selected: Selected | None
    weights: str  # digest of the files


@dataclass
class _Window:
    """The iterations of a window so far, which checkpoints within it keep."""

    rate: float  # the learning rate of the first iteration
    rows: list[dict[str, float]] = field(default_factory=list)  # losses of each iteration
    seconds: float = 0.0


@dataclass
class _Run:
    """The state of one call of :func:`train`."""

    trainer: Trainer
    folder: Path
    report: Callable[[Event], None]
    check: Callable[[], None]
    checkpoints: Checkpoints
    guarded: bool
    ladder: tuple[Remedy, ...]
    select: Callable[[], Selected] | None
    history: list[dict[str, float]] = field(default_factory=list)
    best: _Best | None = None
    interventions: list[Intervention] = field(default_factory=list)
    unrepaired: Divergence | None = None  # the first divergence, where the guard only watches
    doubtful: bool = False  # whether the newest checkpoint is doubtful, see guard.is_doubtful
    window: _Window | None = None  # that has begun
    pace: int = 1  # iterations between two checks for a signal

    @property
    def has_chains(self) -> bool:
        """True if chains draw the samples of the loss."""
        return self.trainer.sampler is not None

    def send(
        self,
        kind: EventKind,
        values: Mapping[str, float | str],
        done: int | None = None,
        text: str = "",
    ) -> None:
        """Report an event."""
        done = self.trainer.iteration if done is None else done
        self.report(
            Event(kind=kind, done=done, total=self.trainer.iterations, values=values, text=text)
        )


def train(
    trainer: Trainer,
    folder: Path,
    report: Callable[[Event], None] = lambda _: None,
    *,
    deadline: float | None = None,
    check: Callable[[], None] = lambda: None,
    select: Callable[[], Selected] | None = None,
) -> Fitted:
    """Train to the end of the recipe's budget, from the newest checkpoint.

    The model with the best measurement of ``select`` is kept, or else with the highest validation
    accuracy, the latest of equals; without validation images, the last one. On divergence the guard
    goes back to a good state and applies the recipe's remedies in turn; with ``guard.mode =
    "watch"`` it only records the divergence.

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
    ladder = guard.remedies(trainer.recipe, chains=trainer.sampler is not None)
    guarded = trainer.recipe.guard.mode != "off"
    run = _Run(trainer, folder, report, check, Checkpoints(folder), guarded, ladder, select)
    with stopping.deferred(), progress.phase(guard.TRAINING, unit="iterations") as shown:
        _resume(run)
        # a tracker may lack some; those that it has are repeated with equal values
        for row in run.history:
            run.send("window", row, int(row["iteration"]))
        shown.done, shown.total = trainer.iteration, trainer.iterations
        run.send("progress", {"unit": "iterations"}, text=guard.TRAINING)
        while trainer.iteration < trainer.iterations:
            _advance(run, shown, deadline)
        return _finish(run)


def _advance(run: _Run, shown: Phase, deadline: float | None) -> None:
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
    stop = bool(stopping.received()) or (deadline is not None and time.time() >= deadline)

    # only a finite state is written
    finite = not (due or stop or snapshot) or trainer.is_finite()
    if run.guarded and not wrong and not finite:
        wrong = "a weight or a stored chain was not finite"
    if wrong and _repair(run, wrong):
        return

    # before the checkpoint, since a resumed training would not take it again
    if snapshot and finite:
        snapshots.keep(run.folder, snapshot, trainer)
    if due:
        run.history[-1] |= _choose(run)
    if due or stop:
        _save(run)
    run.send("window", dict(run.history[-1]))
    if stop and not ended:
        raise _stopped(trainer)


# --- resuming and repairing -----------------------------------------------------------------------


def _resume(run: _Run) -> None:
    """Load the newest checkpoint, or start and write the first.

    A fit whose chosen model was removed starts anew.

    Raises:
        CheckpointError: if the chosen model or its chains are damaged.
    """
    group, state = run.trainer.group, run.checkpoints.newest()
    chosen = [run.folder / name for name in (_MODEL, _SAMPLER)]
    if state is None or (state["best"] and not all(path.exists() for path in chosen)):
        (run.folder / INTERVENTIONS).unlink(missing_ok=True)
        run.trainer.prepare()
        state = _state(run)
        run.checkpoints.begin(state)
        if group.size > 1:  # all processes start from the weights of rank 0
            group.call(run.trainer.load_state_dict, state["trainer"])
        return
    if state["best"]:
        for path in chosen:
            tensors.check(
                path,
                f"Put a copy of the file back, or remove the folder {run.folder} to train again.",
            )
    run.interventions = read_interventions(run.folder)
    run.history = state["history"]
    run.unrepaired = Divergence(*state["unrepaired"]) if state["unrepaired"] else None
    _load(run, state)


def _load(run: _Run, state: Mapping[str, Any]) -> None:
    """Load a state, and apply the remedies decided after it."""
    trainer = run.trainer
    trainer.group.call(trainer.load_state_dict, state["trainer"])
    run.doubtful = run.guarded and guard.is_doubtful(state["history"], chains=run.has_chains)
    window = state.get("window")  # checkpoints of older versions have none
    run.window = _Window(**window) if window else None
    if trainer.adjustment.seeds < len(run.interventions):
        run.window = None  # its iterations belong to the attempt before
        trainer.group.call(trainer.adjust, guard.adjustment(run.interventions))
    run.best = None
    if state["best"]:
        best = _Best(**state["best"])
        if weights_digest(run.folder) == best.weights:
            run.best = best._replace(selected=Selected(*best.selected) if best.selected else None)
        else:
            # the model on disk was chosen on the way to divergence, or just before a kill
            _choose(run)


def _repair(run: _Run, reason: str) -> bool:
    """Go back to a good state and apply the next remedy.

    Without a ladder, the first divergence is recorded. Training goes back to the state before the
    newest if that one is doubtful or has led to divergence before.

    Returns:
        True if training went back.

    Raises:
        Diverged: if no remedy is left.
    """
    divergence = Divergence(run.trainer.iteration, reason)
    if not run.ladder:
        if run.unrepaired is None:
            run.unrepaired = divergence
            text = (
                f"training diverged {divergence}; it goes on unchanged, because the guard only "
                "watches"
            )
            run.send("diverged", divergence._asdict(), text=text)
        return False
    run.send("window", dict(run.history[-1]))
    if len(run.interventions) == len(run.ladder):
        _save_history(run)
        tried = "; ".join(map(str, run.interventions))
        raise Diverged(
            f"Training diverged {divergence}, and no remedy is left. It had been repaired "
            f"{tried}. The energies are in history.csv of the fit's folder, and `jembench "
            "figures` draws them. Lower the learning rate (--set optimizer.learning_rate=...), "
            "take smaller or less noisy sampling steps (--set chains.sampler=...), or give the "
            "guard a longer ladder (--set guard.ladder=...)."
        )
    state = run.checkpoints.newest()
    assert state is not None
    doubtful = guard.is_doubtful(state["history"], chains=run.has_chains)
    if doubtful or len(run.interventions) > state["trainer"]["adjustment"][0]:
        run.checkpoints.drop_newest()
        state = run.checkpoints.newest()
        assert state is not None
    remedy = run.ladder[len(run.interventions)]
    run.interventions.append(Intervention(*divergence, state["trainer"]["iteration"], remedy))
    # in a file of its own: a run that is killed now applies remedies that its checkpoint does not
    # have yet
    written = [intervention._asdict() for intervention in run.interventions]
    records.write(run.folder / INTERVENTIONS, {"interventions": written})
    _load(run, state)
    text = f"training diverged and was repaired {run.interventions[-1]}"
    run.send("diverged", run.interventions[-1]._asdict(), text=text)
    return True


class _Interventions(NamedTuple):
    """The content of ``interventions.json``."""

    interventions: tuple[Intervention, ...]


def read_interventions(folder: Path) -> list[Intervention]:
    """Read the interventions of the guard so far.

    Raises:
        CheckpointError: if the file is damaged.
    """
    path = folder / INTERVENTIONS
    if not path.exists():
        return []
    try:
        return list(records.read(path).read(_Interventions).interventions)
    except DamagedError as error:
        raise CheckpointError(
            f"{path} is damaged. It says how this training was kept from diverging, and training "
            f"cannot go on without it. Remove the folder {folder} to train the model again. "
            f"({error})"
        ) from error


# --- a window and its end -------------------------------------------------------------------------


def _window(run: _Run, shown: Phase) -> tuple[list[dict[str, float]], Starts | None]:
    """Run the window's iterations, and log their means.

    Returns:
        the losses of each iteration, and the energies of random starts after the last.

    Raises:
        OutOfTime: if a signal arrived within the window. A checkpoint is then on disk, unless the
            state has diverged, and the next run goes on within this window.
    """
    trainer, every = run.trainer, run.trainer.recipe.log_every
    end = min(trainer.iteration // every * every + every, trainer.iterations)
    window = run.window = run.window or _Window(trainer.learning_rate())
    rows, starts = window.rows, None
    # a few iterations at a time, between which signals are answered
    while trainer.iteration < end:
        shown.done = trainer.iteration
        begun = time.perf_counter()
        losses, starts = trainer.group.call(trainer.window, min(end - trainer.iteration, run.pace))
        taken = time.perf_counter() - begun
        rows += losses
        window.seconds += taken
        run.pace = max(1, int(SIGNAL_INTERVAL * len(losses) / taken))
        if stopping.received() and trainer.iteration < end:
            run.check()
            if not run.ladder or (not guard.verdict(rows, None) and trainer.is_finite()):
                _save(run)
            raise _stopped(trainer)
    run.window = None
    row = _means(run, window, starts)
    run.history.append(row)
    words = [f"{LOSSES[name]} {value:.3f}" for name, value in row.items() if name in LOSSES]
    shown.text = f"{guard.TRAINING}, {' '.join(words)}"
    return rows, starts


def _means(run: _Run, window: _Window, starts: Starts | None) -> dict[str, float]:
    """Return the row of the history for a finished window."""
    count = len(window.rows)
    row: dict[str, float] = {
        "iteration": run.trainer.iteration,
        "iterations": count,
        "seconds": window.seconds / count,
        "passes": run.trainer.passes,
        "attempt": len(run.interventions),
        "learning_rate": window.rate,
    }
    for name in window.rows[0]:
        row[name] = sum(losses[name] for losses in window.rows) / count
    if starts:
        row |= {f"{name}_start": value for name, value in starts._asdict().items()}
    return row


def _judge(run: _Run, rows: Sequence[Mapping[str, float]], starts: Starts | None) -> str | None:
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


def _choose(run: _Run) -> dict[str, float]:
    """Validate, and keep the model if it is the best so far.

    Without validation images the last model is kept.

    Returns:
        the accuracy and NLL on the validation images, and the measurement that selects, for the
        history.
    """
    trainer = run.trainer
    validation = trainer.validate()
    selected = run.select() if run.select else None
    if not validation and not selected and trainer.iteration < trainer.iterations:
        return {}  # only the last model is kept
    accuracy = rank = validation.get("accuracy")
    if selected:
        validation[selected.label] = selected.value
        rank = selected.value if selected.better == "higher" else -selected.value
    best = run.best.rank if run.best else None
    if best is None or rank is None or rank >= best:
        checkpoint.write(run.folder / _SAMPLER, trainer.chains())
        checkpoint.write(run.folder / _MODEL, trainer.weights(), age=trainer.iteration)
        digest = weights_digest(run.folder)
        run.best = _Best(trainer.iteration, accuracy, rank, selected, digest)
    return {f"validation_{name}": value for name, value in validation.items()}


def _save(run: _Run) -> None:
    """Write a checkpoint, in place of a doubtful newest one."""
    _save_history(run)
    run.checkpoints.write(_state(run), run.trainer.iteration, over_newest=run.doubtful)
    run.doubtful = run.guarded and guard.is_doubtful(run.history, chains=run.has_chains)


def _state(run: _Run) -> dict[str, Any]:
    return {
        "trainer": run.trainer.state_dict(),
        "history": run.history,
        "best": run.best._asdict() if run.best else None,
        "unrepaired": list(run.unrepaired or ()),
        "window": asdict(run.window) if run.window else None,
    }


def _save_history(run: _Run) -> None:
    """Write the losses and energies so far as CSV."""
    names = list(dict.fromkeys(name for row in run.history for name in row))
    stream = io.StringIO()
    writer = csv.DictWriter(stream, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(run.history)
    write_atomically(run.folder / HISTORY, stream.getvalue().encode())


def _stopped(trainer: Trainer) -> OutOfTime:
    """Return the error of a training that stops early.

    Its checkpoint is on disk.
    """
    return OutOfTime(
        f"{stopping.reason()} after {trainer.iteration} of {trainer.iterations} iterations. "
        "The same command goes on from there."
    )


def _finish(run: _Run) -> Fitted:
    assert run.best is not None
    run.checkpoints.tidy()
    return Fitted(
        iteration=run.best.iteration,
        validation_accuracy=run.best.accuracy,
        selected=run.best.selected,
        seconds=sum(row["seconds"] * row["iterations"] for row in run.history),
        history=run.history,
        interventions=run.interventions,
        stability=_stability(run),
    )


def _stability(run: _Run) -> Stability | None:
    """Return what the guard saw, or None if it judged nothing."""
    first = run.interventions[0] if run.interventions else run.unrepaired
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
