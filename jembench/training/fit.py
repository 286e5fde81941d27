"""From a trainer to a trained model on disk: checkpoints, the choice of the best one, resuming, and divergence.

A fit's folder holds ``checkpoint.safetensors`` (the full state, to go on from), ``model.safetensors`` and
``sampler.safetensors`` (the chosen model and its chains) and ``history.csv``.
"""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from jembench.errors import Diverged
from jembench.files import write_text
from jembench.training import checkpoint
from jembench.training.loop import Trainer

LARGEST_LOSS = 1e8
"""A loss beyond it is divergence, as in the reference implementation (wgrathwohl/JEM)."""

Progress = Callable[[int, int, str], None]
"""(iterations done, iterations in all, what to say of the last ones)."""


class Fitted(NamedTuple):
    """What is known of a finished fit beside its weights."""

    iteration: int  # that the chosen weights are from
    validation_accuracy: float | None
    seconds: float  # spent in iterations, over all runs of the fit
    history: list[dict[str, float]]  # one row a window of ``log_every`` iterations


def fit(trainer: Trainer, folder: Path, progress: Progress = lambda *_: None) -> Fitted:
    """Train to the end of the recipe's budget, from the folder's checkpoint if there is one.

    The model that is kept is the one of the highest validation accuracy, the latest of equals; without validation
    images, the last.

    Raises:
        Diverged: if a loss, a weight or a chain is not finite any more. The checkpoint on disk is of before.
        StoreError: if a file cannot be written. The previous checkpoint is kept.
    """
    state = _resume(trainer, folder)
    while trainer.iteration < trainer.iterations:
        row = _window(trainer)
        state["history"].append(row)
        progress(trainer.iteration, trainer.iterations, describe(row))
        if trainer.iteration % trainer.recipe.checkpoint_every == 0 or trainer.iteration == trainer.iterations:
            _checkpoint(trainer, folder, state)
    best, history = state["best"], state["history"]
    return Fitted(
        best["iteration"], best["accuracy"], sum(row["seconds"] * row["iterations"] for row in history), history
    )


def _resume(trainer: Trainer, folder: Path) -> dict[str, Any]:
    path = folder / "checkpoint.safetensors"
    if not path.exists():
        return {"history": [], "best": None}
    state: dict[str, Any] = checkpoint.read(path)
    trainer.load_state_dict(state.pop("trainer"))
    return state


def _window(trainer: Trainer) -> dict[str, float]:
    """Some iterations, and their means. The host waits for the device only at the end."""
    start = time.perf_counter()
    rows = []
    for _ in range(min(trainer.recipe.log_every, trainer.iterations - trainer.iteration)):
        rows.append(trainer.iterate())
    names = list(rows[0])
    values = torch.stack([torch.stack([row[name] for name in names]) for row in rows]).double().cpu()
    seconds = (time.perf_counter() - start) / len(rows)
    _check(values, names, trainer.iteration - len(rows))
    means = dict(zip(names, values.mean(0).tolist(), strict=True))
    place = {"iteration": trainer.iteration, "iterations": len(rows), "seconds": seconds}
    return {**place, "learning_rate": trainer.learning_rate, **means}


def _check(values: torch.Tensor, names: list[str], before: int) -> None:
    good = values.isfinite() & (values.abs() <= LARGEST_LOSS)
    if not good.all():
        first = int((~good).any(1).nonzero()[0])
        part = names[int((~good[first]).nonzero()[0])]
        raise Diverged(
            f"Training diverged in iteration {before + first + 1}: {part} was {values[first, names.index(part)]:.3g}. "
            "The last good checkpoint is kept. Use another seed, a lower learning rate "
            "(--set optimizer.learning_rate=...) or longer chains (--set chains.sampler=...)."
        )


def _checkpoint(trainer: Trainer, folder: Path, state: dict[str, Any]) -> None:
    if not trainer.is_finite():
        raise Diverged(
            f"Training diverged before iteration {trainer.iteration}: a weight or a stored chain is not finite. The "
            "last good checkpoint is kept. Use another seed, a lower learning rate or longer chains."
        )
    validation = trainer.validate()
    accuracy = validation.accuracy if validation else None
    if validation:
        state["history"][-1] |= {"validation_accuracy": validation.accuracy, "validation_nll": validation.nll}
    if state["best"] is None or accuracy is None or accuracy >= state["best"]["accuracy"]:
        state["best"] = {"iteration": trainer.iteration, "accuracy": accuracy}
        checkpoint.write(folder / "sampler.safetensors", trainer.sampler.state_dict() if trainer.sampler else {})
        checkpoint.write(folder / "model.safetensors", dict(trainer.model.state_dict()))
    write_text(folder / "history.csv", _as_csv(state["history"]))
    checkpoint.write(folder / "checkpoint.safetensors", {"trainer": trainer.state_dict(), **state})


def _as_csv(history: list[dict[str, float]]) -> str:
    names = list(dict.fromkeys(name for row in history for name in row))
    stream = io.StringIO()
    writer = csv.DictWriter(stream, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(history)
    return stream.getvalue()


def describe(row: dict[str, float]) -> str:
    """A window of training in a few words."""
    words = [f"loss {row['loss']:.3f}"]
    for prefix in ("", "joint_"):
        if f"{prefix}energy_data" in row:
            data, samples = row[f"{prefix}energy_data"], row[f"{prefix}energy_samples"]
            words.append(f"E(data) {data:.2f} E(samples) {samples:.2f}")
    return " ".join(words)
