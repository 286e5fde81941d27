"""The selection of a checkpoint and of the length of chains.

A metric on validation images selects both. The chains are the new ones that generate images.
"""

from collections.abc import Callable

from jembench.catalog import registry
from jembench.catalog.spec import Spec
from jembench.errors import SpecError
from jembench.experiment.plan import FitPlan
from jembench.experiment.recipe import Recipe
from jembench.interfaces.metrics import Metric
from jembench.models import execution
from jembench.running.caches import FeatureBank
from jembench.running.evaluation import TrainedFit
from jembench.training.choice import SelectedWeights
from jembench.training.loop import Trainer


def metrics(recipe: Recipe) -> dict[int | None, Metric]:
    """Make the metric by which a recipe selects; {}: selection by accuracy.

    The keys are the lengths of chains; None if the recipe lists none.

    Raises:
        SpecError: if there is no such metric or option.
    """
    if not recipe.selection.metric:
        return {}
    named = Spec(recipe.selection.metric)
    made = dict[int | None, Metric]()
    for steps in recipe.selection.steps or (None,):
        spec = named if steps is None else named.with_(steps=steps)
        made[steps] = registry.resolve("metrics", spec).make()
    return made


def selector(
    fit: FitPlan, bank: FeatureBank, trainer: Trainer
) -> Callable[[], SelectedWeights] | None:
    """Return the function that measures a trainer's model; None: accuracy selects.

    Weights are averaged if the recipe averages them.
    """
    candidates, validation = metrics(fit.recipe), trainer.held.validation
    if not candidates or validation is None:  # a recipe with a metric holds images out
        return None

    def select() -> SelectedWeights:
        with trainer.averaged(), execution.mode(trainer.model, train=False):
            measured = TrainedFit(
                model=trainer.model,
                sampler=trainer.chains.sampler,
                dataset=bank.dataset,
                parts={"test": validation},
                device=trainer.device,
                seed=fit.seed,
                bank=bank,
                held=trainer.held,
                conditional=fit.recipe.chains.conditional,
            )
            results = [_measured(metric, steps, measured) for steps, metric in candidates.items()]
        best = max if results[0].better == "higher" else min
        return best(results, key=lambda result: result.value)

    return select


def _measured(metric: Metric, steps: int | None, fit: TrainedFit) -> SelectedWeights:
    label, value = next(iter(metric.compute(fit.evaluation()).values.items()))
    if not value.better:
        raise SpecError(
            f"selection.metric is {metric.name}, but neither high nor low values of it are better."
        )
    return SelectedWeights(label, value.value, value.better, steps)
