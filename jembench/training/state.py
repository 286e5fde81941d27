"""The state of a training, which its checkpoints keep."""

import dataclasses
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from jembench.data.holdout import holdout
from jembench.data.images import parts
from jembench.data.pixels import to_float
from jembench.errors import CheckpointError
from jembench.experiment import effects
from jembench.experiment.recipe import Recipe
from jembench.interfaces import DataSpec, Split
from jembench.models import execution, predictions
from jembench.store.checkpoint import load_weights
from jembench.training import passes, processes
from jembench.training.batches import Batches
from jembench.training.chains import Chains
from jembench.training.functions import Functions
from jembench.training.guard import Adjustment
from jembench.training.optimizers import WeightAverage, load_optimizer, make_optimizer, phases_of


class TrainingState:
    """A model, its optimisers, its chains and its position in the data.

    No other state is kept between two iterations: a trainer that loads another's ``state_dict``
    continues exactly as the other would have (bit for bit on the CPU).

    Args:
        model: an ``nn.Module`` that is :class:`~jembench.interfaces.Trainable`.
        data: the description of the images.
        images: the training split; the recipe holds its validation images out of it.
        recipe: how to train.
        seed: the random seed.
        device: where to train.

    Raises:
        SpecError: if there are no labels, batches cannot be shared out evenly, or an override has
            no effect.
    """

    def __init__(
        self,
        model: Any,
        data: DataSpec,
        images: Split,
        recipe: Recipe,
        *,
        seed: int,
        device: torch.device,
    ) -> None:
        self.group = processes.group
        self.model = model.to(device)
        self.phases = phases_of(model)
        self.data = data
        self.recipe = recipe
        self.seed = seed
        self.device = device
        self.held = holdout(images, recipe.data.validation, stratified=recipe.data.stratified)
        train = self.held.train
        outliers = getattr(model, "needs_outliers", False)
        self.batches = Batches(train, data, recipe, seed=seed, device=device, outliers=outliers)
        self.iterations = effects.iterations(recipe, self.batches.per_epoch)
        sizes = self.batches.sizes
        self.chains = Chains(model, data, recipe, train, sizes, seed=seed, device=device)
        self.schedule = recipe.schedule.make()
        self.iteration = 0
        self.adjust(Adjustment())
        self.chains.check_batch()  # refused now, not in a later iteration
        self._prepare()
        # made after the weights have their final layout, so that averages are taken in one piece
        self.average = None
        if recipe.optimizer.average:
            self.average = WeightAverage(model, recipe.optimizer.average)

    @cached_property
    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        """The phases' optimisers, made when training begins.

        PyTorch's optimisers import its compiler, which takes seconds.
        """
        optimizers = {}
        for name, phase in self.phases.items():
            options = dataclasses.replace(self.recipe.optimizer, **phase.settings)
            optimizers[name] = make_optimizer(phase.parameters, options)
        return optimizers

    def _prepare(self, precision: str = "") -> None:
        """Make the functions that iterations call.

        ``precision`` is from the checkpoint, if there is one.
        """
        self.functions = Functions(
            self.model,
            self.phases,
            self.data,
            self.recipe,
            self.device,
            chains=self.chains.sampler is not None,
            precision=precision,
        )

    def learning_rate(self, phase: str = "") -> float:
        """Return the learning rate of a phase's next step."""
        factor = self.schedule(self.iteration, self.batches.per_epoch, self.iterations)
        settings, common = self.phases[phase].settings, self.recipe.optimizer.learning_rate
        rate: float = settings.get("learning_rate", common)
        return rate * factor * self.adjustment.rate

    @property
    def sampling_steps(self) -> int:
        """The length of a chain; 0 without chains."""
        sampler = self.chains.sampler
        return sampler.steps * self.adjustment.steps if sampler else 0

    @cached_property
    def _loss_passes(self) -> int:
        """Passes of the losses of an iteration, all processes together; 0: unknown."""
        sizes = {"outliers": 0, **self.batches.sizes, "samples": self.chains.count}
        own_sizes = {name: size // self.group.size for name, size in sizes.items()}
        # frees the memory of the gradients, as before the loss of an iteration
        self.model.zero_grad(set_to_none=True)
        with execution.autocast(self.functions.execution.precision, self.device):
            count = passes.of_losses(
                self.model,
                list(self.phases.values()),
                self.data,
                own_sizes,
                self.device,
                shared=self.recipe.data.shared,
            )
        if self.recipe.optimizer.sharpness:
            count *= 2
        return self.group.size * count

    @property
    def passes(self) -> int:
        """Network passes of an iteration after the first, by all processes; 0: unknown."""
        return self._loss_passes and self._loss_passes + self.chains.count * self.sampling_steps

    @torch.no_grad()
    def prepare(self) -> None:
        """Give the training images to a :class:`~jembench.interfaces.models.Prepared` model."""
        if not hasattr(self.model, "prepare"):
            return
        images, _ = self.batches.sources["marginal"]
        size = predictions.batch(self.device, self.data.shape)
        self.model.eval()
        self.model.prepare(
            to_float(part.to(self.device), self.data.bounds) for part in parts(images, size)
        )
        if self.average:
            self.average.load_state_dict(self.model.state_dict())

    def adjust(self, adjustment: Adjustment) -> None:
        """Apply the remedies of the guard.

        They are longer chains, a lower learning rate or a penalty.

        All random streams are reset, with other seeds after each intervention.
        """
        self.adjustment = adjustment
        again = f"/{adjustment.seeds}" if adjustment.seeds else ""
        self.batches.begin(again)
        self.chains.begin(again)

    def validate(self) -> dict[str, float]:
        """Return accuracy and NLL on the held-out images.

        The result is empty without such images, or for a model without logits.
        """
        held = self.held.validation
        if held is None or held.labels is None or not hasattr(self.model, "logits"):
            return {}
        with self.averaged():
            readings = predictions.read(self.model, held.images, self.data, self.device, {"logits"})
        logits = readings["logits"].double()
        hits = logits.argmax(1) == held.labels
        nll = F.cross_entropy(logits, held.labels)
        return {"accuracy": float(hits.double().mean()), "nll": float(nll)}

    def averaged(self) -> AbstractContextManager[None]:
        """Give the model its averaged weights within the context, if there are any."""
        return self.average.in_place_of(self.model) if self.average else nullcontext()

    def weights(self) -> dict[str, Tensor]:
        """Return the model's state for evaluation, averaged if the recipe says so."""
        return dict(self.average.state if self.average else self.model.state_dict())

    def is_finite(self) -> bool:
        """Return whether every parameter, buffer and stored chain is a finite number."""
        weights, chains = self.model.state_dict(), self.chains.state_dict()
        return all(bool(x.isfinite().all()) for x in (*weights.values(), *chains.values()))

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state that the next iteration depends on."""
        average = self.average.state if self.average else {}
        optimizers = {name: kept.state_dict() for name, kept in self.optimizers.items()}
        return {
            "iteration": self.iteration,
            "precision": self.functions.execution.precision,
            "model": dict(self.model.state_dict()),
            "average": average,
            "optimizers": optimizers,
            "sampler": self.chains.state_dict(),
            "batches": self.batches.state_dict(),
            "generator": self.chains.generator.get_state(),
            "adjustment": list(self.adjustment),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that :meth:`state_dict` returned.

        Raises:
            CheckpointError: if the state belongs to another model, dataset, sampler or kind of
                device.
        """
        random = state["generator"].cpu()
        if len(random) != len(self.chains.generator.get_state()):
            raise CheckpointError(
                f"The training began on another kind of device than {self.device.type}, whose "
                "random numbers differ, so that it cannot go on here. Continue it there "
                "(--device), or start it anew in another --store."
            )
        if state["precision"] != self.functions.execution.precision:
            self._prepare(state["precision"])
        load_weights(self.model, state["model"])
        if self.average:
            self.average.load_state_dict(state["average"])
        if self.chains.sampler:
            self.chains.sampler.load_state_dict(state["sampler"])
        for name, optimizer in self.optimizers.items():
            load_optimizer(optimizer, state["optimizers"][name])
        self.batches.load_state_dict(state["batches"])
        self.adjustment = Adjustment(*state["adjustment"])
        self.iteration = state["iteration"]
        self.chains.generator.set_state(random)
