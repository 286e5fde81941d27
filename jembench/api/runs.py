"""Training, measuring and attacking models from Python.

``jembench run``, ``attack`` and ``train`` do the same.
"""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from jembench.api.arguments import (
    Settings,
    checked,
    model_specs,
    one_text,
    seed_numbers,
    setting_texts,
    some_texts,
    texts,
)
from jembench.api.fit import Fit
from jembench.api.live import dataset_spec, model_spec
from jembench.api.results import Results
from jembench.api.stored import Location, OpenStore, opened
from jembench.catalog import discovery, registry
from jembench.catalog.options import options_of
from jembench.errors import Fallback, SpecError
from jembench.experiment import suite as suites
from jembench.experiment.attacks import attack_suite
from jembench.experiment.crossing import make_plan, plan_fits
from jembench.experiment.names import DisplayNames, display_names
from jembench.experiment.plan import Plan
from jembench.experiment.stored import plan_named, started, with_imports
from jembench.experiment.suite import Execution, Suite
from jembench.report.headings import known_as
from jembench.report.published import Published, published_numbers
from jembench.running import session
from jembench.running.display import Display
from jembench.running.driver import RunOptions
from jembench.store.outcome import Evaluated
from jembench.store.store import Store

if TYPE_CHECKING:
    from torch import nn

    from jembench.interfaces import Event


@checked
def run(
    suite: str | Path | Suite,
    *,
    models: Any = None,
    metrics: str | Sequence[str] | None = None,
    datasets: Any = None,
    seeds: int | Iterable[int] | None = None,
    recipe: str | None = None,
    settings: Settings | None = None,
    names: Mapping[str, str] = MappingProxyType({}),
    sampler: str | None = None,
    limit: int | None = None,
    split: Evaluated = "test",
    reference: str | Sequence[str] | None = None,
    store: Location | OpenStore | None = None,
    device: str | None = None,
    executor: str | None = None,
    max_hours: float | None = None,
    skip_missing: bool | None = None,
    progress: bool = True,
) -> Results:
    """Train the models of a suite and compute its metrics.

    Results that the store has are not computed again.

    Finished work is kept: after an interrupt, the same call continues from there.

    Args:
        suite: the name of a suite, a TOML file or a :class:`jembench.experiment.suite.Suite`.
        models: replace the suite's own: specs or modules (``torch.nn.Module``), one or several, or
            a mapping of display names to these (``{"Mine": net}``). A module that is no
            :class:`jembench.interfaces.Trainable` is measured without training, on float images in
            [-1, 1].
        metrics: specs that replace the suite's metrics and grids.
        datasets: replace the suite's own: specs, dataset objects
            (:class:`jembench.interfaces.Dataset`) or arrays ``{"train": (images, labels), "test":
            (images, labels)}``, one or several.
        seeds: replace the suite's own.
        recipe: a name or a TOML file; None: the suite's, or the default of the dataset.
        settings: changes of the recipe and of metrics.
        names: display names by specs of models, and headings of columns by metrics.
        sampler: spec of a sampler, such as ``sgld:steps=100``, that draws the samples of every
            model with a differentiable energy for metrics with an option ``sampler``; None: each
            model draws samples by its own method.
        limit: number of test images to evaluate on; None: all.
        split: ``validation`` evaluates on the images that the recipe holds out of the training
            images in place of test images; the results are never shown beside those on test images.
        reference: published tables to show beside the results, ``jem-iclr2020/table1``, or
            ``none``; None: the suite's.
        store: the folder of trained models and results; None: the file's, or ``runs``. The file may
            also set the next four arguments.
        device: cpu, cuda, cuda:1 ...; auto, the default, is the first GPU, or else the CPU.
        executor: the name or the import path of an executor.
        max_hours: stop after this many hours, with a warning, and return the results so far.
        skip_missing: start even if weights or images are missing; results that need them are N/A.
        progress: show progress on stderr.

    Raises:
        SpecError: if a name, an option or a value does not exist, before anything is computed.
        Unavailable: if a dataset or weights are missing; the message says the remedy.
        StoreError: if the store cannot be written.

    Example:
        >>> mine = {"models": model, "datasets": arrays, "metrics": "accuracy", "store": folder}
        >>> results = run("hybrid", **mine, progress=False)
        >>> [(record.label, record.n) for record in results]
        [('accuracy', 30)]
    """
    if not isinstance(suite, Suite):
        suite = suites.load(one_text(suite, "suite") or "")
    recipe = one_text(recipe, "recipe")
    published = published_numbers(texts(reference, "reference"), suite.references, split)
    place, how = place_and_options(
        suite,
        store,
        device=device,
        max_hours=max_hours,
        executor=executor,
        skip_missing=skip_missing,
    )
    plan = plan_run(
        suite,
        place,
        models=models,
        metrics=metrics,
        datasets=datasets,
        seeds=seeds,
        recipe=recipe,
        settings=setting_texts(settings),
        names=names,
        sampler=sampler,
        limit=limit,
        split=split,
    )
    return _noted(results_of(plan, place, how, published, progress=progress))


def place_and_options(
    suite: Suite | None, store: Location | OpenStore | None, **replaced: Any
) -> tuple[Store, RunOptions]:
    """Return the store and the options of a run.

    Args:
        suite: whose file may state them.
        store: replaces the file's; None: the file's, or ``runs``.
        replaced: execution options that override the file's; None: the file's.
    """
    execution = Execution(**replaced).stated
    if suite:
        execution = suite.execution.stated | execution
    options = {name: execution[name] for name in RunOptions._fields if name in execution}
    place = execution.get("store", "runs") if store is None else store
    return opened(place).store, RunOptions(**options)


def plan_run(
    suite: Suite,
    store: Store,
    *,
    models: Any = None,
    metrics: Any = None,
    datasets: Any = None,
    seeds: int | Iterable[int] | None = None,
    recipe: str | None = None,
    settings: Sequence[str] = (),
    names: Mapping[str, str] = MappingProxyType({}),
    sampler: str | None = None,
    limit: int | None = None,
    split: Evaluated = "test",
) -> Plan:
    """Return the plan of :func:`run`.

    Models may also be the names of imported fits of the store. ``settings`` are texts,
    ``key=value``.
    """
    specs, names = model_specs(models, names)
    chosen = suite.replaced(
        models=specs,
        metrics=some_texts(metrics, "metrics"),
        datasets=some_texts(datasets, "datasets", dataset_spec),
        seeds=seed_numbers(seeds),
    )
    plan = make_plan(
        with_imports(chosen, store),
        recipe=recipe,
        settings=[*settings, *_sampler_settings(chosen, sampler)],
        limit=limit,
        split=split,
        started=functools.partial(started, store=store),
    )
    # the suite may have display names of replaced models, data or metrics
    optional: Collection[str] = ()
    if models is not None or metrics is not None or datasets is not None:
        optional = suite.display
    return _named(plan, {**suite.display, **names}, optional)


def _sampler_settings(suite: Suite, sampler: str | None) -> list[str]:
    """Return the settings by which the metrics of samples use a sampler.

    Args:
        suite: the metrics, and the default sampler.
        sampler: replaces the suite's.

    Raises:
        SpecError: if no metric takes ``sampler``.
    """
    chosen = sampler or suite.sampler
    if not chosen:
        return []
    names, takers = sorted(suite.metric_names), []
    for name in names:
        factory = discovery.load(discovery.find("metrics", name))
        if "sampler" in options_of(factory):
            takers.append(name)
    if sampler and not takers:
        raise SpecError(
            f"None of the metrics {', '.join(names)} takes a sampler ({sampler:.80}). Leave it "
            "out, or add a metric of samples, as fid, is or energy-gap."
        )
    return [f"{name}.sampler={registry.resolve('samplers', chosen)}" for name in takers]


def _named(plan: Plan, names: Mapping[str, str], optional: Collection[str] = ()) -> Plan:
    """Return the plan with display names and headings."""
    columns = set[str]()
    for metric in {cell.metric.spec for cell in plan.cells}:
        columns.update(filter(None, known_as(metric)))
        # values that are known only after the run: ece-classwise
        prefix = f"{metric.bare}-"
        columns.update(text for text in names if text.startswith(prefix))
    asked = {fit.key.names: fit.asked for fit in plan.fits}
    shown_names = display_names(names, asked, plan.names, columns, optional)
    return dataclasses.replace(plan, names=shown_names)


@checked
def attack(
    name: str,
    *,
    models: Any = ("jem", "baseline"),
    datasets: Any = "digits",
    seeds: int | Iterable[int] = 0,
    recipe: str | None = None,
    settings: Settings | None = None,
    budget: str | None = None,
    names: Mapping[str, str] = MappingProxyType({}),
    limit: int | None = None,
    split: Evaluated = "test",
    store: Location | OpenStore | None = None,
    device: str = "auto",
    executor: str = "auto",
    max_hours: float | None = None,
    progress: bool = True,
    **options: Any,
) -> Results:
    """Attack trained models, and train those that the store does not have.

    Args:
        name: pgd, boundary, pointwise, transfer, distal, or the name of a metric of a plugin.
        models: as for :func:`run`; or fits of a store (:class:`Fit`), which bring dataset, recipe,
            seed and store.
        datasets: as for :func:`run`.
        seeds: of the models.
        recipe: as for :func:`run`.
        settings: as for :func:`run`.
        budget: the limits of the attack: quick, paper ...; None: quick on digits, else paper.
        names: as for :func:`run`.
        limit: as for :func:`run`.
        split: as for :func:`run`.
        store: as for :func:`run`; None: the fits' store, or ``runs``.
        device: as for :func:`run`.
        executor: as for :func:`run`.
        max_hours: as for :func:`run`.
        progress: as for :func:`run`.
        options: of the attack, as ``jembench list metrics`` shows them. ``norm``, ``eps`` (a share
            of a pixel's range: ``"8/255"``), ``refine``, ``eot`` and ``smooth`` may be lists; each
            combination is an attack.

    Raises:
        SpecError: if a name or an option does not exist.

    Example:
        >>> budget = {"images": 2, "restarts": 1, "steps": 2}
        >>> results = attack("pgd", models=fit, norm="l2", **budget, progress=False)
        >>> {record.unit for record in results if record.label == "pgd-l2@64/255"}
        {'%'}
    """
    fits = _fits_among(models)
    plans = [fit.plan for fit in fits]
    options |= {"budget": budget}
    recipe = one_text(recipe, "recipe")
    if store is None:
        store = fits[0].store.root if fits else "runs"
    place = opened(store).store
    if fits:
        datasets = [plan.dataset.text() for plan in plans]
    specs = some_texts(datasets, "datasets", dataset_spec) or []
    suite = attack_suite(name, options, list(dict.fromkeys(specs)))
    if fits:
        plan = plan_fits(suite, plans, limit, split)
        if isinstance(models, Mapping):
            named = {name: fit.plan.key.model for name, fit in models.items()}
            _, names = model_specs(named, names)
        plan = _named(plan, names)
    else:
        plan = plan_run(
            suite,
            place,
            models=models,
            seeds=seeds,
            recipe=recipe,
            settings=setting_texts(settings),
            names=names,
            limit=limit,
            split=split,
        )
    how = RunOptions(device, max_hours, executor)
    return _noted(results_of(plan, place, how, progress=progress))


def _fits_among(models: Any) -> list[Fit]:
    """Return the models if they are fits of a store.

    Raises:
        SpecError: if only some models are fits.
    """
    if isinstance(models, Mapping):
        models = list(models.values())
    elif not isinstance(models, list | tuple):
        models = [models]
    fits = [model for model in models if isinstance(model, Fit)]
    if fits and len(fits) != len(models):
        raise SpecError(
            "models holds fits of a store beside other models. Attack them by two calls."
        )
    return fits


@checked
def train(
    model: str | nn.Module,
    *,
    dataset: Any = "digits",
    recipe: str | None = None,
    settings: Settings | None = None,
    seed: int = 0,
    store: Location | OpenStore = "runs",
    device: str = "auto",
    max_hours: float | None = None,
    progress: bool = True,
    on_window: Callable[[Event], object] = lambda window: None,
) -> Fit:
    """Train one model unless the store has it, and load it.

    Arguments are those of :func:`run`, and ``on_window``, a function that is called after each
    window of the training with an :class:`~jembench.interfaces.Event`, whose ``values`` are the
    columns of ``history.csv``. An error that it raises ends the training, and the same call goes on
    from the last checkpoint.

    Raises:
        SpecError: if a name or an option does not exist.
        Diverged: if training diverged and no remedy is left.
        OutOfTime: after ``max_hours``; the same call continues from there.

    Example:
        >>> fit = train(name, dataset=data, recipe=recipe, store=store, progress=False)
        >>> fit.model.training
        False
    """
    place, recipe = opened(store).store, one_text(recipe, "recipe")
    spec, data = model_spec(model), dataset_spec(dataset)
    plan = plan_named(spec, data, recipe, setting_texts(settings), seed, place)
    how, display = RunOptions(device, max_hours), _display(plan.display, progress)
    with session.open_fit(plan, place, how, display, on_window) as evaluation:
        return Fit(plan, place, evaluation)


def results_of(
    plan: Plan,
    store: Store,
    how: RunOptions,
    published: Sequence[Published] = (),
    *,
    progress: bool = True,
) -> Results:
    """Carry out the unfinished part of a plan, and return its results.

    If the work ended early, ``stopped`` of the results has the reason.
    """
    done = session.run_plan(plan, store, how, _display(plan.names, progress))
    results = Results(
        done.cells, plan.parts, published, suite=plan.suite, names=plan.names, store=store
    )
    results.stopped = done.stopped
    return results


def _display(names: DisplayNames, progress: bool) -> Callable[[], AbstractContextManager[Any]]:
    return functools.partial(Display, names) if progress else nullcontext


def _noted(results: Results) -> Results:
    if results.stopped:
        warnings.warn(str(results.stopped), Fallback, stacklevel=3)
    return results
