"""Stores from Python, with their results and trained models."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jembench.api import sharing
from jembench.api.arguments import Settings, checked, one_text, selection, setting_texts, texts
from jembench.api.fit import Fit
from jembench.api.live import dataset_spec, model_spec
from jembench.api.results import Results
from jembench.api.sharing import Fetched, Pushed
from jembench.errors import SpecError
from jembench.experiment.names import dataset_id, matching
from jembench.experiment.plan import plan_again
from jembench.experiment.stored import find, imports, plan_named
from jembench.store.fits import FitRecord
from jembench.store.merge import merge
from jembench.store.outcome import FitKey
from jembench.store.store import Store
from jembench.store.walk import FileFinding

if TYPE_CHECKING:
    from torch import nn

Location = str | os.PathLike[str]
"""The folder of a store."""


class OpenStore:
    """A folder with trained models and results, returned by :func:`open_store`."""

    def __init__(self, root: Location) -> None:
        if root is None:
            raise SpecError("store is None; it must be the path of a folder.")
        self.store = Store(Path(one_text(root, "store") or ""))

    def __repr__(self) -> str:
        return f"<jembench store {self.store.root}>"

    @property
    def fits(self) -> list[FitKey]:
        """Model, dataset, recipe and seed of each trained model.

        Example:
            >>> sorted({fit.seed for fit in store.fits})
            [0, 1]
        """
        return [record.key for record in self.store.trained()]

    def results(
        self,
        suite: str | None = None,
        *,
        reference: str | Sequence[str] | None = None,
        **selected: Any,
    ) -> Results:
        """Return the current results of the store.

        Of several results with the same names, the newest is current.

        Args:
            suite: the name of a suite, to show only its metrics, with its published numbers.
            reference: published tables to show beside the results, as for :func:`run`.
            selected: the selection and the display names, as for :func:`selection`.

        Raises:
            SpecError: if there is no such suite or published table, or no result of a selected
                name.
            StoreError: if the store cannot be read.

        Example:
            >>> {"accuracy", "ece"} <= {record.label for record in store.results()}
            True
            >>> [record.label for record in store.results(models=name, columns="ece,accuracy")]
            ['ece', 'accuracy']
        """
        results = Results.of_store(
            self.store, selection(suite, **selected), texts(reference, "reference")
        )
        if not results.cells:
            raise SpecError(results.nothing)
        return results

    def merge(self, *sources: Location) -> list[FileFinding]:
        """Copy what this store lacks from other stores: fits and results.

        ``jembench store merge`` does the same.

        Args:
            sources: the other stores' folders.

        Returns:
            a finding for each fit and file that was ``copied``, ``kept`` unchanged, ``damaged`` or
            ``busy``.

        Raises:
            SpecError: if there is no such folder.
            StoreError: if a file cannot be written.

        Example:
            >>> store.merge(store.store.root)  # nothing is lacking
            []
        """
        stores = [OpenStore(source).store for source in sources]
        for store in stores:
            store.check_exists()  # before anything is copied
        findings = []
        for store in stores:
            for finding in merge(store, self.store):
                findings.append(finding._replace(file=str(store.root / finding.file)))
        return findings

    def push(self, fit: FitKey | str, to: Location, **how: Any) -> Pushed:
        """Share a trained model, as ``jembench push`` does.

        Args:
            fit: an entry of :attr:`fits`, its id, or the beginning of its folder's name.
            to: a new folder, a file that ends in .zip, or ``hf://user/name``.
            how: ``chains=False`` leaves out the samples that training kept;
                ``license="apache-2.0"`` stands in the model card; ``private=True`` creates a
                private repository.

        Raises:
            SpecError: if there is no such model, or the folder is not empty.
            Unavailable: if the hub cannot be reached or refuses.

        Example:
            >>> store.push(store.fits[0], folder / "model.zip").files > 5
            True
        """
        key = find(self.store, fit) if isinstance(fit, str) else fit
        if not isinstance(key, FitKey):
            raise SpecError(
                f"fit is given as {type(fit).__name__}; it must be one of the fits of the store, "
                "or its id."
            )
        return sharing.push(self.store, key, one_text(to, "to") or "", **how)

    def fetch(self, source: Location) -> Fetched:
        """Copy a shared model into this store, as ``jembench fetch`` does.

        Args:
            source: a folder, a zip archive or ``hf://user/name``, optionally followed by
                ``@revision``.

        Raises:
            SpecError: if the source is no shared model, or names code that is not installed.
            DamagedError: if a file differs from the shared one.
            Unavailable: if the hub cannot be reached or refuses.

        Example:
            >>> store.fetch("nowhere.zip")
            Traceback (most recent call last):
            jembench.errors.SpecError: There is no nowhere.zip...
        """
        return sharing.fetch(one_text(source, "source") or "", self.store)

    @checked
    def load(
        self,
        model: str | nn.Module,
        *,
        dataset: Any = None,
        recipe: str | None = None,
        settings: Settings | None = None,
        seed: int = 0,
        device: str = "auto",
    ) -> Fit:
        """Return a trained or imported model of the store.

        Args:
            model: a spec, a name that means one model, or the name of an import; a module is found
                by its content.
            dataset: a spec, a dataset object or arrays; None: the trained model's, if only one
                matches.
            recipe: a label as in tables (``digits+epochs=5``); None: the trained model's, if only
                one matches. The fields come from the training's record.
            settings: of the training, as for :func:`run`; then ``recipe`` and ``dataset`` have
                the defaults of a training, and the fields come from the recipe's present file.
            seed: of the fit.
            device: cpu, cuda, cuda:1 ...; auto: the first GPU, else the CPU.

        Raises:
            SpecError: if the store has no such model, or several; all are listed.
            CheckpointError: if a file is damaged.

        Example:
            >>> fit = store.load(name, recipe="tiny", seed=0)
            >>> fit.data.shape, fit.recipe.epochs
            ((1, 4, 4), 4.0)
        """
        from jembench.running import session
        from jembench.running.driver import RunOptions

        text, recipe = model_spec(model), one_text(recipe, "recipe")
        data = None if dataset is None else dataset_spec(dataset)
        changes = setting_texts(settings)
        records: Sequence[FitRecord] = [] if changes else imports(self.store, text)
        if not changes and not records:
            records = _meant(self.store.trained(), text, data, recipe, seed)
        if len(records) > 1:
            meant = "; ".join(str(record.key) for record in records)
            raise SpecError(
                f"More than one trained model is meant: {meant}. Give dataset=, recipe= or the "
                "model's spec in full."
            )
        if records:
            (record,) = records
            folder = str(self.store.fit_folder(record.key))
            plan = plan_again(record, data or record.key.dataset, folder, [text, recipe or ""])
        else:
            name, *of_label = (recipe or "").split("+")
            changes = [*of_label, *changes]
            plan = plan_named(text, data or "digits", name or None, changes, seed, self.store)
        if not plan.is_pretrained and not self.store.is_trained(plan.key):
            names = "; ".join(map(str, self.fits)) or "none"
            raise SpecError(
                f"The store {self.store.root} has no trained {plan}, by the code and the options "
                f"of today. Its trained models: {names}. `jembench.train` or `jembench train` "
                "trains it."
            )
        with session.open_fit(plan, self.store, RunOptions(device)) as evaluation:
            return Fit(plan, self.store, evaluation)


def _meant(
    records: Sequence[FitRecord], model: str, dataset: str | None, recipe: str | None, seed: int
) -> Sequence[FitRecord]:
    """Return the trained models that the arguments mean."""
    records = [record for record in records if record.key.seed == seed]
    if recipe is not None:
        records = [record for record in records if record.key.recipe == recipe]
    models = matching("models", model, [record.key.model for record in records])
    records = [record for record in records if record.key.model in models]
    if dataset is None:
        return records
    datasets = matching("datasets", dataset, [record.key.dataset for record in records])
    own_id = dataset_id(dataset)  # the files may have been named by another path
    return [
        record
        for record in records
        if record.key.dataset in datasets or record.dataset_id == own_id
    ]


def open_store(root: Location = "runs") -> OpenStore:
    """Return a store, to read its results and to load its models.

    The folder need not exist yet.

    Example:
        >>> open_store("runs")
        <jembench store runs>
    """
    return OpenStore(root)


def load(model: str | nn.Module, *, store: Location | OpenStore = "runs", **which: Any) -> Fit:
    """Return a trained model of a store, as :meth:`OpenStore.load` does.

    Example:
        >>> load(name, recipe="tiny", store=store).data.shape
        (1, 4, 4)
    """
    return opened(store).load(model, **which)


def opened(store: Location | OpenStore) -> OpenStore:
    """Return the store itself, or the store in a folder."""
    return store if isinstance(store, OpenStore) else OpenStore(store)
