"""The training of a fit's model, and its loading for evaluation."""

import dataclasses
import functools
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from jembench import progress, stopping
from jembench.errors import CheckpointError, Diverged, SpecError
from jembench.experiment.plan import FitPlan
from jembench.experiment.stored import check_stored, start_of
from jembench.files import digest
from jembench.interfaces import Event, Quantity
from jembench.interfaces.evaluation import TrainingRecord
from jembench.models.capabilities import is_fitted, readable
from jembench.models.execution import forget_compiled, to_channels_last
from jembench.models.settings import isolated
from jembench.running import provenance
from jembench.running.building import CPU, fit_at_once, held_out, make_model, make_trainer
from jembench.running.caches import FeatureBank, TensorCache
from jembench.running.evaluation import TrainedFit
from jembench.running.events import Report
from jembench.running.selection import selector
from jembench.store import checkpoint, tensors
from jembench.store.checkpoint import load_weights
from jembench.store.fits import HISTORY, INTERVENTIONS, RECORD, FitRecord, age
from jembench.store.outcome import Evaluated
from jembench.store.store import Store
from jembench.training import processes, snapshots
from jembench.training.chains import make_sampler
from jembench.training.fit import train
from jembench.training.memory import Memory


@dataclass(frozen=True, kw_only=True)
class FitWork:
    """The training or loading of one fit."""

    fit: FitPlan
    bank: FeatureBank  # the dataset's feature networks, on the device
    store: Store
    report: Report
    deadline: float | None = None  # UTC in seconds since 1970; training stops then
    command: str = ""  # the user's command; "": the command of this process
    memory: Memory | None = None  # of the training; None: unknown
    # sentences on settings that plugins left changed
    notes: list[str] = field(default_factory=list, init=False)

    def load_or_train(
        self,
        limit: int | None = None,
        wanted: frozenset[Quantity] = frozenset(),
        split: Evaluated = "test",
    ) -> TrainedFit:
        """Load the fit's model from the store, after training if necessary.

        Args:
            limit: the number of test images for evaluation; None: all.
            wanted: the quantities of images that the metrics will read.
            split: the images for evaluation.

        Raises:
            Diverged: if training diverged and no remedy is left; the store keeps a record of it.
            OutOfTime: if the deadline passed.
            PluginError: if code of a plugin fails.
            ProcessLost: if a process of the group failed or has ended.
            StoreError: if the store cannot be written.
        """
        folder = self.store.fit_folder(self.fit.key)
        if not self.store.is_trained(self.fit.key):
            self._make(folder)
            stopping.check()
        with progress.phase("loading the model"):
            fit = self._load(folder)
            wanted = readable(fit.model, wanted)
            return dataclasses.replace(fit, limit=limit, split=split, wanted=wanted)

    def _make(self, folder: Path) -> None:
        """Train or fit the model, and write its record."""
        fit, device = self.fit, self.bank.device
        check_stored([fit], self.store)
        (folder / RECORD).unlink(missing_ok=True)  # an old record must not describe new weights
        with progress.phase("building the model"):
            model = make_model(fit, self.bank.dataset, self.note, device)
        size, make = processes.group.size, self._train
        if fit.model.is_pretrained or is_fitted(model):
            size, make = 1, self._fit
        blank = new_record(fit, device, self.command, size)
        start = time.perf_counter()
        try:
            with isolated(f"The training of {fit.asked}", self.note):
                record = make(model, blank, folder)
        except Diverged as error:
            seconds = time.perf_counter() - start
            failed = blank._replace(status="failed", reason=str(error), seconds=seconds)
            self.store.write_fit(failed)
            raise
        about = {**record.provenance, **self.changed}
        self.store.write_fit(record._replace(files=digests(folder), provenance=about))

    @property
    def changed(self) -> dict[str, list[str]]:
        """The provenance entry for settings that plugins left changed; {}: none."""
        if not self.notes:
            return {}
        return {"changed_settings": list(self.notes)}

    def note(self, text: str) -> None:
        """Send a warning about settings that a plugin left changed, once."""
        if text not in self.notes:
            self.notes.append(text)
            self.warn(text)

    def warn(self, text: str) -> None:
        """Send a warning."""
        self.report(Event(kind="warning", text=text))

    def _train(self, model: Any, blank: FitRecord, folder: Path) -> FitRecord:
        fit, bank, group = self.fit, self.bank, processes.group
        size = fit.recipe.processes
        if size != group.size:
            raise SpecError(
                f"{fit} is trained by {size} processes together, and here there are "
                f"{group.size}: another number gives another model. `jembench run --set "
                f"processes={size} --executor processes` starts them on this machine."
            )
        about, begins = dict[str, Any](blank.provenance), age(folder) < 0
        if begins and self.memory:
            self.warn(f"training takes {self.memory}")
        if fit.recipe.start_from:
            about |= self._start(model, begins=begins)
        with progress.phase("building the model"):
            trainer = make_trainer(fit, bank.dataset, bank.device, model)

        # train with the other processes of the group
        check = functools.partial(self.store.check_lease, fit.key.id)
        with group.leading(fit.key.id):
            select = selector(fit, bank, trainer)
            fitted = train(
                trainer, folder, self.report, deadline=self.deadline, check=check, select=select
            )

        # what the model's results depend on
        about |= {
            "execution": trainer.functions.computed,
            # the number of processes that wait for a core
            "other_load": max(0.0, os.getloadavg()[0] - (os.cpu_count() or 1)),
            "passes": sum(row["passes"] * row["iterations"] for row in fitted.history),
        }
        if fitted.selected:
            about["selected"] = fitted.selected._asdict()
        return blank._replace(
            iteration=fitted.iteration,
            validation_accuracy=fitted.validation_accuracy,
            seconds=fitted.seconds,
            iteration_seconds=_seconds_of_last_attempt(fitted.history),
            interventions=list(map(str, fitted.interventions)),
            stability=fitted.stability,
            provenance=about,
        )

    def _start(self, model: nn.Module, *, begins: bool) -> dict[str, dict[str, str]]:
        """Load the weights that training starts from.

        Buffers that only this model has keep their values.

        Args:
            model: the model before its training.
            begins: False if the training goes on from a checkpoint, which replaces the weights.

        Returns:
            the entry for the provenance.
        """
        start = start_of(self.fit, self.store)
        weights, sha256 = _read_kept(self.store.fit_folder(start.key), "model.safetensors", start)
        own, buffers = model.state_dict(), dict(model.named_buffers())
        kept = {name: own[name] for name in own.keys() & buffers.keys()}
        try:
            load_weights(model, kept | weights)
        except CheckpointError as error:
            raise SpecError(
                f"{self.fit} cannot start from the weights of {start.key}. {error}"
            ) from error
        if begins:
            self.warn(f"training starts from the weights of {start.key}")
        return {"started_from": {"fit": start.key.id, "model": str(start.key), "weights": sha256}}

    def _fit(self, model: Any, blank: FitRecord, folder: Path) -> FitRecord:
        """Fit the model at once, and write its weights and chains.

        A model that was trained elsewhere is written unchanged.
        """
        dataset, seconds = self.bank.dataset, 0.0
        start = time.perf_counter()
        if not self.fit.model.is_pretrained:
            with progress.phase("fitting the model"):
                fit_at_once(model, self.fit, dataset)
            seconds = time.perf_counter() - start
        sampler = make_sampler(model, dataset.spec, self.fit.recipe, dataset.split("train"))
        chains = sampler.state_dict() if sampler else {}
        checkpoint.write(folder / "sampler.safetensors", chains)
        checkpoint.write(folder / "model.safetensors", dict(model.state_dict()))
        return blank._replace(seconds=seconds)

    def _load(self, folder: Path) -> TrainedFit:
        fit, dataset = self.fit, self.bank.dataset
        forget_compiled()  # frees the CUDA graphs of the training or of another model

        # the weights that the record names
        model = make_model(fit, dataset, self.note)
        record = self.store.read_fit(fit.key)
        assert record is not None
        state, weights = _read_kept(folder, "model.safetensors", record)
        if fit.model.is_pretrained and not _is_equal(model.state_dict(), state):
            raise CheckpointError(
                f"The weights of {fit.asked} have changed since they were first measured, "
                "and old and new results would be mixed. Give the new weights another name or "
                f"option, use another --store, or remove {folder}."
            )
        load_weights(model, state)
        to_channels_last(model.to(self.bank.device), dataset.spec)

        # the chains
        held = held_out(fit, dataset)
        sampler = make_sampler(model, dataset.spec, fit.recipe, held.train)
        if sampler is not None:
            chains, _ = _read_kept(folder, "sampler.safetensors", record)
            if chains:  # {}: no chains were kept or shared, so that new chains start
                sampler.load_state_dict(chains)

        return TrainedFit(
            model=model.eval(),
            sampler=sampler,
            dataset=dataset,
            device=self.bank.device,
            seed=fit.seed,
            training=_training_record(record),
            bank=self.bank,
            content=fit.dataset.content,
            conditional=fit.recipe.chains.conditional,
            held=held,
            buffers=functools.partial(snapshots.read, folder),
            deadline=self.deadline,
            cache=TensorCache(self.store.readings_of(fit.key.id, weights)),
            pretrained=fit.is_pretrained,
            imported=bool(fit.recipe.source),
            steps=record.provenance.get("selected", {}).get("steps"),
        )


def _training_record(record: FitRecord) -> TrainingRecord:
    return TrainingRecord(
        iteration_seconds=record.iteration_seconds,
        other_load=record.provenance.get("other_load"),
        stability=record.stability,
        hours=record.seconds / 3600 or None,
        passes=record.provenance.get("passes") or None,
    )


def _is_equal(own: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> bool:
    """Return whether a model's weights equal the weights in its file."""
    if own.keys() != state.keys():
        return False
    return all(torch.equal(own[name].cpu(), state[name]) for name in own)


def new_record(
    fit: FitPlan, device: torch.device = CPU, command: str = "", size: int = 1
) -> FitRecord:
    """Return the record of a fit before training by ``size`` processes."""
    return FitRecord(
        key=fit.key,
        status="done",
        reason="",
        recipe=dataclasses.asdict(fit.recipe),
        iteration=0,
        validation_accuracy=None,
        seconds=0.0,
        iteration_seconds=[],
        interventions=[],
        provenance=provenance.collect(str(device), fit.components, command) | {"processes": size},
        identity=fit.identity,
    )


def _seconds_of_last_attempt(history: Sequence[Mapping[str, float]]) -> list[float]:
    """Return the windows' seconds per iteration since the guard's last intervention.

    The first window contains the warm-up, and is left out unless it is the only one.
    """
    last = [row["seconds"] for row in history if row["attempt"] == history[-1]["attempt"]]
    return last[1:] or last


def _read_kept(folder: Path, name: str, record: FitRecord) -> tuple[Any, str]:
    """Read a file of the fit, and return its state and digest.

    Raises:
        CheckpointError: if the file is damaged, or its digest is not that of the fit's record.
    """
    remedy = f"Put a copy of the file back, or remove the folder {folder} to train the model again."
    state, actual = checkpoint.read_with_digest(folder / name, remedy)
    if record.files.get(name, actual) != actual:
        raise CheckpointError(
            f"{folder / name} is not the file that the training of {record.key.model} left. "
            f"{remedy}"
        )
    return state, actual


def digests(folder: Path) -> dict[str, str]:
    """Return the digests of a training's files.

    The files are weights, chains, buffers, history and interventions.
    """
    digest_of_file: dict[str, str] = {}
    for path in folder.glob("*.safetensors"):
        if not path.name.startswith("checkpoint"):
            digest_of_file[path.name] = tensors.read_seal(path).digest
    for name in (HISTORY, INTERVENTIONS):
        if (folder / name).exists():
            digest_of_file[name] = digest(folder / name)
    return digest_of_file
