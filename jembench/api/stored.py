"""A store from Python: its results, its trained models, and comparisons of two of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from jembench.api import sharing
from jembench.api.live import (
    Settings,
    as_tensor,
    dataset_spec,
    model_spec,
    seed_numbers,
    setting_texts,
    several,
)
from jembench.api.results import Comparison, Results
from jembench.api.sharing import Fetched, Pushed
from jembench.errors import NotApplicable, SpecError
from jembench.experiment import suite_files as suites
from jembench.experiment.plan import FitPlan, plan_again, plan_fit
from jembench.report import references
from jembench.report.names import matching
from jembench.report.page.pictures import Pictures
from jembench.report.pair import Pair, find_pair
from jembench.report.record import subjects
from jembench.report.selection import EVERY, Selection
from jembench.store.latest import asked
from jembench.store.merge import merge
from jembench.store.outcome import FitKey
from jembench.store.store import Store
from jembench.store.verify import Finding

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import Tensor, nn

    from jembench.experiment.recipe import Recipe
    from jembench.interfaces import DataSpec, Evaluation, Sampler, Samples

Location = str | os.PathLike[str]
"""The folder of a store."""


class Fit:
    """A trained model of a store, ready for use.

    Attributes:
        model: the ``torch.nn.Module`` in evaluation mode, on ``device``. It takes float32 images (B, C, H, W) within
            ``data.bounds``.
        sampler: the sampler of its chains, as training left it; None if it was trained without.
        data: what the images are.
        device: where the model is.
        plan: model, dataset, recipe and seed, with their identities.
        folder: where its files are.
    """

    def __init__(self, plan: FitPlan, store: Store, evaluation: Evaluation) -> None:
        self.plan = plan
        self.store = store
        self.folder: Path = store.fit_folder(plan.key)
        self.model: nn.Module = evaluation.model
        self.sampler: Sampler | None = evaluation.sampler
        self.data: DataSpec = evaluation.data.spec
        self.device: torch.device = evaluation.device
        self._evaluation = evaluation

    @property
    def recipe(self) -> Recipe:
        """How it was trained."""
        return self.plan.recipe

    def __repr__(self) -> str:
        return f"<Fit {self.plan}>"

    def sample(self, n: int, steps: int | None = None) -> Samples:
        """Images of the model, the same at each call.

        Args:
            n: how many.
            steps: the length of new chains; None: n of the images that training kept, or that the model draws
                without a chain, chosen at random.

        Returns:
            the images, uint8 (n, C, H, W) on the CPU, and the class of each if its chain was conditioned on one.

        Raises:
            SpecError: if the model generates no images or has no chains, or keeps fewer than n.

        Example:
            >>> fit.sample(4, steps=5).images.shape
            torch.Size([4, 1, 4, 4])
        """
        from jembench.running import fit_samples

        if n < 1 or (steps is not None and steps < 1):
            raise SpecError(f"n is {n} and steps is {steps}; both must be at least 1.")
        samples = fit_samples.samples_of(self._evaluation, self.plan, steps, n)
        if len(samples.images) < n:
            raise SpecError(f"{self.plan.key.model} keeps {len(samples.images)} images, fewer than {n}. Give steps=.")
        if len(samples.images) == n:
            return samples
        import torch

        generator = self._evaluation.services.generator("chosen samples")
        chosen = torch.randperm(len(samples.images), generator=generator)[:n]
        labels, ages = (None if part is None else part[chosen] for part in (samples.labels, samples.ages))
        return samples._replace(images=samples.images[chosen], labels=labels, ages=ages)

    def logits(self, x: Tensor | np.ndarray[Any, Any]) -> Tensor:
        """The logits of p(y|x).

        Args:
            x: images (N, C, H, W): uint8 pixels, or floats within ``data.bounds``.

        Returns:
            float32 (N, K) on the CPU, without gradients; use ``model`` for those.

        Raises:
            SpecError: for images of another shape, or outside the bounds.
            NotApplicable: if the model does not classify.

        Example:
            >>> fit.logits(images).shape
            torch.Size([3, 3])
        """
        return self._read("logits", x, "does not classify")

    def energy(self, x: Tensor | np.ndarray[Any, Any]) -> Tensor:
        """The energy E(x) in nats, up to one constant of the model; arguments and errors as for :meth:`logits`.

        It is -logsumexp of the logits of a JEM (Grathwohl et al., 2020, equation 7), and -log p(x) of a model with a
        normalised density. Lower is likelier.

        Returns:
            float32 (N,) on the CPU.

        Example:
            >>> fit.energy(images).shape
            torch.Size([3])
        """
        return self._read("energy", x, "has no energy")

    def log_prob(self, x: Tensor | np.ndarray[Any, Any]) -> Tensor:
        """The normalised log p(x) in nats per image; arguments as for :meth:`logits`.

        Returns:
            float32 (N,) on the CPU.

        Raises:
            NotApplicable: if the density of the model is not normalised, as that of an energy-based model.

        Example:
            >>> fit.log_prob(images)
            Traceback (most recent call last):
            jembench.errors.NotApplicable: ...
        """
        from jembench.interfaces import Density

        if not isinstance(self.model, Density):
            raise NotApplicable(
                f"{self.plan.key.model} has no normalised density. -fit.energy(x) is log p(x) up to a constant."
            )
        return -self.energy(x)

    def _read(self, quantity: Any, x: Tensor | np.ndarray[Any, Any], lacks: str) -> Tensor:
        from jembench.models import predictions
        from jembench.models.capabilities import capabilities

        if quantity not in capabilities(self.model):
            raise NotApplicable(f"{self.plan.key.model} {lacks}.")
        return predictions.read(self.model, self._images(x), self.data, self.device, {quantity})[quantity]

    def _images(self, x: Tensor | np.ndarray[Any, Any]) -> Tensor:
        import torch

        images = as_tensor(x)
        if images.ndim != 4 or tuple(images.shape[1:]) != self.data.shape:
            wanted = ", ".join(map(str, self.data.shape))
            raise SpecError(f"The images have the shape {tuple(images.shape)}; it must be (N, {wanted}).")
        if images.dtype == torch.uint8:
            return images
        low, high = self.data.bounds
        if not images.is_floating_point() or not ((images >= low) & (images <= high)).all():
            raise SpecError(f"The images are {images.dtype}; they must be uint8, or floats from {low:g} to {high:g}.")
        return images.float()


class OpenStore:
    """A folder with trained models and results, as :func:`open_store` gives it."""

    def __init__(self, root: Location) -> None:
        self.store = Store(Path(root))

    def __repr__(self) -> str:
        return f"<jembench store {self.store.root}>"

    @property
    def fits(self) -> list[FitKey]:
        """Model, dataset, recipe and seed of each trained model.

        Example:
            >>> sorted({fit.seed for fit in store.fits})
            [0, 1]
        """
        return self.store.trained()

    def results(self, suite: str | None = None, **selected: Any) -> Results:
        """The current results of the store: of those with the same names, the most recently requested ones.

        Args:
            suite: the name of a suite, whose metrics alone are shown, with its published numbers.
            selected: which of them, and under which names, as for :func:`selection`.

        Raises:
            SpecError: if there is no such suite, or no result of something that is named.
            StoreError: if the store cannot be read.

        Example:
            >>> {"accuracy", "ece"} <= {record.label for record in store.results()}
            True
            >>> [record.label for record in store.results(models=name, columns="ece,accuracy")]
            ['ece', 'accuracy']
        """
        which = selection(suite, **selected)
        found = which.of(self.store)
        if not found.cells:
            raise SpecError(found.nothing)
        published = references.load(which.suite.references if which.suite else ())
        return Results.selected(found, which, published, Pictures(self.store))

    def merge(self, *sources: Location) -> list[Finding]:
        """Copy what this store lacks from other stores, as ``jembench store merge`` does.

        Args:
            sources: their folders.

        Returns:
            A finding for each fit and file that was ``copied``, ``kept`` as it is here, ``damaged`` or ``busy``.

        Raises:
            SpecError: if there is no such folder.
            StoreError: if a file cannot be written.

        Example:
            >>> store.merge(store.store.root)  # nothing is lacking
            []
        """
        return [finding for source in sources for finding in merge(Store(Path(source)), self.store)]

    def push(self, fit: FitKey | str, to: Location, **how: Any) -> Pushed:
        """Share a trained model, as ``jembench push`` does.

        Args:
            fit: one of :attr:`fits`, its id, or the beginning of its folder's name.
            to: a new folder, a file that ends in .zip, or ``hf://user/name``.
            how: ``chains=False`` leaves out the samples that training kept; ``license="apache-2.0"`` stands in the
                model card; ``private=True`` is for a repository that is created.

        Raises:
            SpecError: if there is no such model, or the folder is not empty.
            Unavailable: if the hub cannot be reached or refuses.

        Example:
            >>> store.push(store.fits[0], folder / "model.zip").files > 5
            True
        """
        return sharing.push(self.store, sharing.find(self.store, fit) if isinstance(fit, str) else fit, str(to), **how)

    def fetch(self, source: Location) -> Fetched:
        """Copy a shared model into this store, as ``jembench fetch`` does.

        Args:
            source: a folder, a zip archive or ``hf://user/name``, with ``@revision`` behind if need be.

        Raises:
            SpecError: if it is no shared model, or names code that is not installed.
            DamagedError: if a file is not the one that was shared.
            Unavailable: if the hub cannot be reached or refuses.

        Example:
            >>> store.fetch("nowhere.zip")
            Traceback (most recent call last):
            jembench.errors.SpecError: There is no nowhere.zip...
        """
        return sharing.fetch(str(source), self.store)

    def load(
        self,
        model: str | nn.Module,
        *,
        dataset: Any = None,
        recipe: str | None = None,
        seed: int = 0,
        device: str = "auto",
    ) -> Fit:
        """A trained model of the store, or one that was trained elsewhere.

        Args:
            model: its spec, or its name where that means one; a module is looked up by its content.
            dataset: a spec, a dataset object or arrays; None: that of the trained model, if there is but one.
            recipe: its label as tables show it (``digits+epochs=5``), or its TOML file; None: that of the trained
                model, if there is but one. The recipe itself comes from the record of the training.
            seed: of the fit.
            device: cpu, cuda, cuda:1 ...; auto takes the first GPU there is.

        Raises:
            SpecError: if the store has no such model, or several; all are listed.
            CheckpointError: if a file is damaged.

        Example:
            >>> fit = store.load(name, recipe=recipe, seed=0)
            >>> fit.data.shape, fit.recipe.epochs
            ((1, 4, 4), 4.0)
        """
        text = model_spec(model)
        known = self._known(text, None if dataset is None else dataset_spec(dataset), recipe, seed)
        plan = self._planned(text, dataset, recipe, seed, known)
        if not plan.model.is_pretrained and not self.store.is_trained(plan.key):
            raise self._missing(plan)
        return self.load_planned(plan, device)

    def load_planned(self, plan: FitPlan, device: str = "auto") -> Fit:
        """The model of a plan, which the store has."""
        from jembench.running import session
        from jembench.training.launch import Placement, joined

        data = plan.dataset.make()
        with (
            joined(Placement(), device, ()) as here,
            session.open_fit(plan, data, self.store, here) as evaluation,
        ):
            return Fit(plan, self.store, evaluation)

    def _known(self, model: str, dataset: str | None, recipe: str | None, seed: int) -> list[FitKey]:
        keys = [key for key in self.fits if key.seed == seed and _is_by(recipe, key)]
        of_model = set(matching("models", model, [key.model for key in keys]))
        of_data = None if dataset is None else set(matching("datasets", dataset, [key.dataset for key in keys]))
        return [key for key in keys if key.model in of_model and (of_data is None or key.dataset in of_data)]

    def _planned(self, model: str, dataset: Any, recipe: str | None, seed: int, known: Sequence[FitKey]) -> FitPlan:
        """The plan of the one trained model that is meant; of what is named, if the store has none."""
        if len(known) > 1:
            raise SpecError(
                f"More than one trained model is meant: {'; '.join(map(str, known))}. Give dataset=, recipe= or the "
                "spec of the model in full."
            )
        record = self.store.read_fit(known[0]) if known else None
        key = record.key if record else None
        data = dataset_spec(dataset) if dataset is not None else key.dataset if key else "digits"
        if record:
            return plan_again(record, data, str(self.store.fit_folder(record.key)), [model, recipe or ""])
        name, *settings = [recipe] if recipe and recipe.endswith(".toml") else (recipe or "").split("+")
        return plan_fit(model, data, name or None, settings, seed)

    def _missing(self, plan: FitPlan) -> SpecError:
        names = "; ".join(map(str, self.fits)) or "none"
        return SpecError(
            f"The store {self.store.root} has no trained {plan}, by the code and the options of today. Its trained "
            f"models: {names}. `jembench.train` or `jembench train` trains it."
        )


def _is_by(recipe: str | None, key: FitKey) -> bool:
    """Whether a recipe, a label or a file, is that of a trained model."""
    if recipe and recipe.endswith(".toml"):
        return key.recipe.partition("+")[0] == Path(recipe).stem
    return recipe in (None, key.recipe)


def selection(
    suite: str | None = None,
    *,
    models: Any = None,
    dataset: Any = None,
    recipe: str | Sequence[str] | None = None,
    settings: Settings | None = None,
    seeds: int | Iterable[int] | None = None,
    metrics: str | Sequence[str] | None = None,
    columns: str | Sequence[str] | None = None,
    names: Mapping[str, str] = MappingProxyType({}),
    limit: int | None = None,
) -> Selection:
    """Which results of a store are shown. None means all; several are a list, or a text with commas.

    Args:
        suite: the name of a suite, whose metrics alone are shown; or the file of an experiment, whose models, data,
            recipes, seeds and names count as well, where the arguments below say nothing else.
        models: specs or modules, in the order in which they are shown; a bare name means that spec, or else all of the
            name.
        dataset: specs or datasets, likewise.
        recipe: labels as tables show them, ``digits+epochs=5``; None: those that only a suite has changed; "all".
        settings: changes that the recipes have.
        seeds: of the trained models.
        metrics: specs, in the order of the columns.
        columns: labels of values, in the order of the columns.
        names: display names by specs of models, for tables and figures.
        limit: show what was measured on this number of test images; None: what the suite says, or else on all.

    Example:
        >>> selection("hybrid", models="jem,baseline", columns=["accuracy", "ece"]).models
        ['jem', 'baseline']
    """

    def texts(given: Any, spec: Callable[[Any], str] = str) -> list[str] | None:
        return None if given is None else [spec(one) for one in several(given)]

    chosen = suites.load(suite) if suite else None
    return Selection(
        suite=chosen,
        file=suite if suite and chosen and chosen.text else "",
        models=texts(models, model_spec),
        dataset=texts(dataset, dataset_spec),
        recipe=texts(recipe),
        settings=setting_texts(settings),
        seeds=None if seeds is None else seed_numbers(seeds),
        metrics=texts(metrics),
        columns=texts(columns),
        names=names,
        limit=chosen.limit if chosen and limit is None else limit,
    )


def open_store(root: Location = "runs") -> OpenStore:
    """A store, to read its results and to load its models. The folder need not exist yet.

    Example:
        >>> open_store("runs")
        <jembench store runs>
    """
    return OpenStore(root)


def load(model: str | nn.Module, *, store: Location | OpenStore = "runs", **which: Any) -> Fit:
    """A trained model of a store; arguments and errors as for :meth:`OpenStore.load`.

    Example:
        >>> load(name, recipe=recipe, store=store).data.shape
        (1, 4, 4)
    """
    return opened(store).load(model, **which)


def compare(
    a: str | nn.Module,
    b: str | nn.Module,
    *,
    store: Location | OpenStore = "runs",
    dataset: str | None = None,
    recipe: str | None = None,
    recipe_b: str | None = None,
    metrics: str | Sequence[str] | None = None,
    columns: str | Sequence[str] | None = None,
    seeds: int | Iterable[int] | None = None,
    names: Mapping[str, str] = MappingProxyType({}),
    limit: int | None = None,
    resamples: int = 10_000,
) -> Comparison:
    """Two models of a store, image by image and seed by seed: the difference of each value and its significance.

    Nothing is trained or evaluated. Two sources of randomness are kept apart: other test images (a paired bootstrap,
    McNemar's test for accuracy) and training again with other seeds (Student's t). P values are adjusted by Holm.

    Args:
        a: a model as tables show it, or its name where that means one.
        b: the other; the differences are a - b.
        store: where both were measured.
        dataset: that both were measured on; None: the one that they share.
        recipe: the label of the recipe of both; None: whatever there is, the last asked for first.
        recipe_b: that of b, where it is another.
        metrics: compare these alone, as for :func:`selection`; columns, seeds, names and limit as well.
        resamples: of the bootstrap; no p value is below 1 / (resamples + 1).

    Raises:
        SpecError: if the store has no such models, or more than one pair is meant.

    Example:
        >>> [record["label"] for record in compare(name, other, store=store, resamples=100).records]
        ['accuracy', 'ece']
    """
    from jembench.report.comparison import compare as compared

    place = opened(store).store
    found = selection(recipe=EVERY, seeds=seeds, names=names, limit=limit).of(place)
    if not found.cells:
        raise SpecError(found.nothing)
    pair = find_pair(
        subjects(found.cells, found.names),
        model_spec(a),
        model_spec(b),
        dataset=dataset,
        recipe=recipe,
        recipe_b=recipe_b,
        commands=[command.families for command in asked(place)],
    )
    chosen = selection(metrics=metrics, columns=columns)
    cells = chosen.among([cell for subject in pair for cell in subject.cells])
    pair = Pair(*(replace(of, cells=tuple(cell for cell in cells if cell.fit.names == of.names)) for of in pair))
    return Comparison(compared(pair, place.read_arrays, resamples))


def opened(store: Location | OpenStore) -> OpenStore:
    """The store itself, or that in a folder."""
    return store if isinstance(store, OpenStore) else OpenStore(store)
