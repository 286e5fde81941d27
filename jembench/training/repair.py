"""The resumption of a stopped training, and the repair of a diverged one."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jembench.errors import CheckpointError, DamagedError, Diverged
from jembench.store import records
from jembench.store.fits import INTERVENTIONS
from jembench.training import guard, history
from jembench.training.guard import Divergence, Intervention
from jembench.training.history import Window
from jembench.training.run import TrainingRun


def resume(run: TrainingRun) -> None:
    """Load the newest checkpoint, or start and write the first checkpoint.

    A fit whose chosen model was removed starts anew.

    Raises:
        CheckpointError: if the chosen model or its chains are damaged.
    """
    state = run.checkpoints.newest()
    if state is None or (state["best"] and run.choice.is_removed()):
        _start(run)
        return
    if state["best"]:
        run.choice.check()
    run.interventions = _read_interventions(run.folder)
    run.history = state["history"]
    if state["unrepaired"]:
        run.unrepaired = Divergence(*state["unrepaired"])
    _load(run, state)


def _start(run: TrainingRun) -> None:
    (run.folder / INTERVENTIONS).unlink(missing_ok=True)
    trainer = run.trainer
    trainer.prepare()
    state = run.state()
    run.checkpoints.begin(state)
    if trainer.group.size > 1:  # all processes start from the weights of rank 0
        trainer.group.call(trainer.load_state_dict, state["trainer"])


def _load(run: TrainingRun, state: Mapping[str, Any]) -> None:
    """Load a state, and apply the remedies decided after it."""
    trainer = run.trainer
    trainer.group.call(trainer.load_state_dict, state["trainer"])
    run.note_doubt(state["history"])
    window = state.get("window")  # checkpoints of older versions have none
    run.window = Window(**window) if window else None
    if trainer.adjustment.seeds < len(run.interventions):
        run.window = None  # its iterations are of the previous attempt
        trainer.group.call(trainer.adjust, guard.adjustment(run.interventions))
    run.choice.load_state_dict(state["best"])


def repair(run: TrainingRun, reason: str) -> bool:
    """Go back to a good state and apply the next remedy.

    Without a ladder, the first divergence is only recorded.

    Returns:
        True if training went back.

    Raises:
        Diverged: if no remedy is left.
    """
    divergence = Divergence(run.trainer.iteration, reason)
    if not run.ladder:
        _record(run, divergence)
        return False
    run.send("window", dict(run.history[-1]))
    if len(run.interventions) == len(run.ladder):
        history.write(run.folder, run.history)
        tried = "; ".join(map(str, run.interventions))
        raise Diverged(
            f"Training diverged {divergence}, and no remedy is left. It had been repaired "
            f"{tried}. The energies are in history.csv of the fit's folder, and `jembench "
            "figures` draws them. Lower the learning rate (--set optimizer.learning_rate=...), "
            "take smaller or less noisy sampling steps (--set chains.sampler=...), or give the "
            "guard a longer ladder (--set guard.ladder=...)."
        )
    state = _good_state(run)
    remedy = run.ladder[len(run.interventions)]
    intervention = Intervention(*divergence, state["trainer"]["iteration"], remedy)
    run.interventions.append(intervention)
    # in a file of its own, since checkpoints lack the newest remedies: a run that is killed now
    # applies them when it resumes
    written = [intervention._asdict() for intervention in run.interventions]
    records.write(run.folder / INTERVENTIONS, {"interventions": written})
    _load(run, state)
    text = f"training diverged and was repaired {intervention}"
    run.send("diverged", intervention._asdict(), text=text)
    return True


def _record(run: TrainingRun, divergence: Divergence) -> None:
    """Record the first divergence of a watched training."""
    if run.unrepaired:
        return
    run.unrepaired = divergence
    text = f"training diverged {divergence}; it goes on unchanged, because the guard only watches"
    run.send("diverged", divergence._asdict(), text=text)


def _good_state(run: TrainingRun) -> Any:
    """Return the newest state, or the state before the newest.

    The newest state is dropped if it is doubtful or has led to divergence before.
    """
    state = run.checkpoints.newest()
    assert state is not None
    doubtful = guard.is_doubtful(state["history"], chains=run.has_chains)
    if doubtful or len(run.interventions) > state["trainer"]["adjustment"][0]:
        run.checkpoints.drop_newest()
        state = run.checkpoints.newest()
        assert state is not None
    return state


class _Interventions(NamedTuple):
    """The content of ``interventions.json``."""

    interventions: tuple[Intervention, ...]


def _read_interventions(folder: Path) -> list[Intervention]:
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
