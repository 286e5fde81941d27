"""The iterations of a training, and the state that they change.

Legend: B batch, C channels, H height, W width, K classes.
"""

import dataclasses
from collections.abc import Mapping
from contextlib import nullcontext
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from jembench import seeds
from jembench.catalog import registry
from jembench.data.holdout import holdout
from jembench.data.pixels import to_float
from jembench.errors import CheckpointError, SpecError
from jembench.experiment import effects
from jembench.experiment.recipe import Recipe
from jembench.interfaces import Batch, ChainState, DataSpec, Energies, Negatives, Sampler, Split
from jembench.interfaces.samplers import Adaptive
from jembench.models import devices, execution, predictions
from jembench.models.energies import LogitModel, energy_function, grad_energy, logits_function
from jembench.models.objective import checked_loss, has_batch_norm
from jembench.sampling import chain
from jembench.sampling.graph import ChainGraph
from jembench.store.checkpoint import load_weights
from jembench.training import passes, processes
from jembench.training.batches import Batches
from jembench.training.guard import HIGHEST, HIGHEST_DATA, Adjustment, Starts
from jembench.training.optimizers import (
    WeightAverage,
    load_optimizer,
    make_optimizer,
    phases_of,
    sam_perturbation,
)


class Trainer:
    """A model, its optimisers, its chains and its position in the data.

    No other state is kept between two iterations: a trainer that loads another's ``state_dict``
    continues exactly as that one would have (bit for bit on the CPU).

    In a group (:mod:`jembench.training.processes`) the state is the same in all processes, and
    ``window``, ``adjust`` and ``load_state_dict`` are called in all at once.

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
        self.sampler = make_sampler(model, data, recipe, train)
        self.schedule = recipe.schedule.make()
        self.iteration = 0
        self._own_noise = seeds.generator(seed, "own chains", device)  # of this process in a group
        self.adjust(Adjustment())
        of_classes = getattr(model, "chains", "none") == "conditional"
        of_batch = self.batches.sizes["labelled" if of_classes else "marginal"]
        self.chain_count = of_batch if self.sampler else 0
        # refused now, not in a later iteration
        if self.sampler and hasattr(self.sampler, "check_batch"):
            self.sampler.check_batch(
                self.chain_count, conditional=of_classes or recipe.chains.conditional
            )
        self._prepare()
        # made when the weights lie as they will: averages are then taken in one piece
        self.average = (
            WeightAverage(model, recipe.optimizer.average) if recipe.optimizer.average else None
        )

    @cached_property
    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        """The phases' optimisers, made when training begins.

        PyTorch's import its compiler, which takes seconds.
        """
        options = {
            name: dataclasses.replace(self.recipe.optimizer, **phase.settings)
            for name, phase in self.phases.items()
        }
        return {
            name: make_optimizer(phase.parameters, options[name])
            for name, phase in self.phases.items()
        }

    def _chance(self, purpose: str) -> str:
        """Return the purpose that this iteration's random numbers are derived from.

        It has the rank and past remedies.
        """
        return f"{purpose}@{self.group.rank}/{self.adjustment.seeds}/{self.iteration}"

    def _prepare(self, precision: str = "") -> None:
        """Make the functions that iterations call: dE/dx for chains, and the loss.

        ``precision`` is that of the checkpoint, if there is one.
        """
        compute = dataclasses.asdict(self.recipe.compute)
        if precision:
            compute["precision"] = precision
        self.execution = devices.execution(self.data, self.device, **compute)
        if self.execution.channels_last:
            channels_last = execution.to_channels_last(self.model, self.data)
            self.execution = dataclasses.replace(self.execution, channels_last=channels_last)
        self.given_up: list[str] = []
        self._losses = {name: phase.loss for name, phase in self.phases.items()}
        model, recipe = self.model, self.recipe
        # the data of p(x) pass before the chains are run where both change the running statistics
        # of batch norm, as in the code of JEM++ and SADA-JEM
        both = (
            isinstance(model, LogitModel)
            and model.chains == "marginal"
            and recipe.chains.mode == "train"
        )
        data_first = both and not recipe.data.shared and has_batch_norm(model)
        self._pass_first = logits_function(model, self.data.num_classes) if data_first else None
        if self.execution.compiled:
            execution.forget_compiled()  # of former networks
            if getattr(self.model, "compiles", True):
                self._losses = {
                    name: execution.compiled(loss, self.given_up)
                    for name, loss in self._losses.items()
                }
            else:
                self.given_up.append("the model says that its loss cannot be compiled")
            # as the chains are: they write to running statistics that a plain pass would keep
            if self._pass_first:
                self._pass_first = execution.compiled(
                    self._pass_first, self.given_up, captured=False
                )
        if self.sampler:
            self.grad_energy = grad_energy(
                self.model, self.execution, self.given_up, of_chains=True
            )
        self.graph = ChainGraph(self.model) if self.sampler and self.execution.captured else None

    @property
    def computed(self) -> dict[str, Any]:
        """The execution of the iterations so far, for the record.

        It has precision, layout, compilation and algorithms.
        """
        return {
            "precision": self.execution.precision,
            "layout": "channels_last" if self.execution.channels_last else "contiguous",
            "compiled": self.execution.compiled and not self.given_up,
            "not_compiled": list(self.given_up),
            "captured": self.graph is not None and not self.graph.given_up,
            "not_captured": [] if self.graph is None else list(self.graph.given_up),
            # the fastest algorithms of one run may differ from the next one's, and so do the bits
            # of its results
            "cudnn_benchmark": self.device.type == "cuda" and torch.backends.cudnn.benchmark,
        }

    def learning_rate(self, phase: str = "") -> float:
        """Return the learning rate of a phase's next step."""
        factor = self.schedule(self.iteration, self.batches.per_epoch, self.iterations)
        rate: float = self.phases[phase].settings.get(
            "learning_rate", self.recipe.optimizer.learning_rate
        )
        return rate * factor * self.adjustment.rate

    @property
    def sampling_steps(self) -> int:
        """The length of a chain; 0 without chains."""
        return self.sampler.steps * self.adjustment.steps if self.sampler else 0

    @cached_property
    def _loss_passes(self) -> int:
        """Passes of the losses of an iteration, all processes together; 0: unknown."""
        sizes = {"outliers": 0, **self.batches.sizes, "samples": self.chain_count}
        sizes = {name: size // self.group.size for name, size in sizes.items()}
        times = self.group.size * (2 if self.recipe.optimizer.sharpness else 1)
        # as before the loss of an iteration, whose memory this one needs
        self.model.zero_grad(set_to_none=True)
        with execution.autocast(self.execution.precision, self.device):
            phases, shared = list(self.phases.values()), self.recipe.data.shared
            return times * passes.of_losses(
                self.model, phases, self.data, sizes, self.device, shared=shared
            )

    @property
    def passes(self) -> int:
        """Network passes of a later iteration, by all processes; 0: unknown."""
        return self._loss_passes and self._loss_passes + self.chain_count * self.sampling_steps

    @torch.no_grad()
    def prepare(self) -> None:
        """Give the training images to a :class:`~jembench.interfaces.models.Prepared` model.

        It is a :class:`~jembench.interfaces.models.Prepared` model.
        """
        if hasattr(self.model, "prepare"):
            images, _ = self.batches.sources["marginal"]
            self.model.eval()
            size = predictions.batch(self.device, self.data.shape)
            self.model.prepare(
                to_float(part, self.data.bounds) for part in torch.split(images, size)
            )
            if self.average:
                self.average.load_state_dict(self.model.state_dict())

    def window(self, n: int) -> tuple[list[dict[str, float]], Starts | None]:
        """Run n iterations.

        The host waits for the device only at their end.

        Returns:
            the loss and its parts of each iteration, over the images and chains of all processes,
            and :meth:`random_starts` unless the guard is off.
        """
        rows = [self.iterate() for _ in range(n)]
        if isinstance(self.sampler, Adaptive) and self.iteration % self.recipe.log_every == 0:
            self.sampler.adapt()
        starts = self.random_starts() if self.recipe.guard.mode != "off" else None
        names = list(rows[0])
        values = torch.stack([row[name] for row in rows for name in names]).view(n, len(names))
        of_all = self.group.gather(values).view(self.group.size, *values.shape)
        values = of_all.mean(0)
        for name in {HIGHEST, HIGHEST_DATA}.intersection(names):
            values[:, names.index(name)] = of_all[:, :, names.index(name)].amax(0)
        losses = [dict(zip(names, row, strict=True)) for row in values.double().tolist()]
        if starts is None:
            return losses, None
        return losses, Starts(float(starts.max()), float(starts.mean()))

    def iterate(self) -> dict[str, Tensor]:
        """Take a step of each optimiser, and return the losses.

        They are still on the device.

        The network's own randomness, such as dropout, depends on the seed and the iteration only,
        also after a resume.
        """
        whole, values = self.batches.draw(), dict[str, Tensor]()
        iteration = torch.full((), float(self.iteration), device=self.device)
        batch = self.group.cut(whole)._replace(iteration=iteration)
        with seeds.drawing(self.seed, self._chance("network"), self.device):
            self.model.train()
            first = batch
            if self._pass_first:
                with execution.autocast(self.execution.precision, self.device):
                    first = batch._replace(logits=self._pass_first(batch.x))
            negatives = self._negatives(whole)
            for phase in self.phases:
                values |= self._step(phase, first, batch, negatives)
                first = batch
        self.iteration += 1
        if self.average:
            self.average.update(self.model, self.iteration)
        return values

    def _step(
        self, phase: str, first: Batch, batch: Batch, negatives: Negatives | None
    ) -> dict[str, Tensor]:
        """Take the optimiser step of a phase.

        ``first`` is the batch with the logits that were computed already.
        """
        for group in self.optimizers[phase].param_groups:
            group["lr"] = self.learning_rate(phase)
        values = self._differentiate(phase, first, negatives)
        if radius := self.recipe.optimizer.sharpness:
            adaptive = self.recipe.optimizer.adaptive
            with (
                execution.unchanged_buffers(self.model),
                sam_perturbation(self.model, radius, adaptive=adaptive),
            ):
                self._differentiate(phase, batch, negatives)
        if clip := self.recipe.optimizer.clip:
            torch.nn.utils.clip_grad_norm_(self.phases[phase].parameters, clip)
        self.optimizers[phase].step()
        return values

    def _differentiate(
        self, phase: str, batch: Batch, negatives: Negatives | None
    ) -> dict[str, Tensor]:
        """Compute the gradients of a phase's parameters.

        Returns the loss, its parts and the highest energies.

        The first iteration's loss is not compiled: a network may initialise itself by its first
        images, and that code would be compiled for one use.
        """
        # frees the former gradients before the maps are allocated
        self.model.zero_grad(set_to_none=True)
        with execution.autocast(self.execution.precision, self.device):
            compute = self._losses[phase] if self.iteration else self.phases[phase].loss
            loss = checked_loss(compute(batch, negatives), self.model)
        total, extremes = loss.total, {}
        if loss.energies is not None:
            seen = Energies(*(energy.detach() for energy in loss.of_chains or loss.energies))
            if getattr(self.model, "generates", True):  # outliers of other origin may lie anywhere
                extremes = _judged(seen, loss.parts)
            if isinstance(self.sampler, Adaptive):
                self.sampler.observe(self.group.gather(seen))
            if weight := max(self.recipe.energy_l2, self.adjustment.energy_l2):
                total = total + weight * (
                    loss.energies.data.square().mean() + loss.energies.samples.square().mean()
                )
        trained = [
            parameter for parameter in self.phases[phase].parameters if parameter.requires_grad
        ]
        total.backward(inputs=trained)  # type: ignore[no-untyped-call]
        self._agree()
        return {f"{phase}_loss".removeprefix("_"): total.detach(), **loss.parts, **extremes}

    def _agree(self) -> None:
        """Average gradients and running statistics over all processes.

        The processes hold one model.
        """
        gradients = [weight.grad for weight in self.model.parameters() if weight.grad is not None]
        running = ("running_mean", "running_var")
        seen = [buffer for name, buffer in self.model.named_buffers() if name.endswith(running)]
        self.group.average_([*gradients, *seen])
        if self.iteration == 0 and self.group.size > 1:
            # a network may initialise itself by its first images, which differ by process: all take
            # rank 0's
            load_weights(self.model, self.group.broadcast(dict(self.model.state_dict())))

    def _negatives(self, batch: Batch) -> Negatives | None:
        """Return this process's ends of the chains.

        ``batch`` is that of all processes.
        """
        if self.sampler is None:
            return None
        conditional = self.model.chains == "conditional"
        n, y = self.recipe.batch_size, None
        if conditional:
            n, y = len(batch.y_labelled), batch.y_labelled
        elif self.recipe.chains.conditional:
            y = torch.randint(
                self.data.num_classes, (n,), generator=self.generator, device=self.device
            )
        train = self.recipe.chains.mode == "train"
        with execution.mode(self.model, train=train), execution.frozen(self.model):
            state = self._move(self.sampler, self.sampler.init(n, y, generator=self.generator))
            self.sampler.finish(state)
        return self.group.cut(Negatives(state.x, state.y if conditional else None))

    def _move(self, sampler: Sampler, state: ChainState) -> ChainState:
        """Run this process's chains, and return the ends of all."""
        run, generator = chain.run if self.graph is None else self.graph.run, self.generator
        if self.group.size > 1:
            generator = self._own_noise.manual_seed(seeds.derive(self.seed, self._chance("chains")))
        ends = run(sampler, self.group.cut(state), self.grad_energy, generator, self.sampling_steps)
        return self.group.gather(ends)

    @torch.no_grad()
    def random_starts(self) -> Tensor | None:
        """Return the energies of a batch of new chains, float32 (B,).

        None for a model without chains.

        Training is not affected: its random streams are not used, and no statistics of a norm
        change.
        """
        if self.sampler is None:
            return None
        generator = seeds.generator(self.seed, f"guard/{self.iteration}", self.device)
        y = None
        if self.model.chains == "conditional":
            y = torch.arange(self.recipe.batch_size, device=self.device) % self.data.num_classes
        state = self.sampler.start(self.recipe.batch_size, y, generator=generator)
        with (
            execution.unchanged_buffers(self.model),
            seeds.drawing(self.seed, f"guard/network/{self.iteration}", self.device),
            execution.mode(self.model, train=self.recipe.chains.mode == "train"),
            execution.autocast(self.execution.precision, self.device),
        ):
            return energy_function(self.model, of_chains=True)(state.x, state.y).float()

    def adjust(self, adjustment: Adjustment) -> None:
        """Apply the remedies of the guard.

        They are longer chains, a lower learning rate or a penalty.

        All random streams are reset, with other seeds after each intervention.
        """
        self.adjustment = adjustment
        again = f"/{adjustment.seeds}" if adjustment.seeds else ""
        self.batches.begin(again)
        self.generator = seeds.generator(self.seed, f"chains{again}", self.device)

    def validate(self) -> dict[str, float]:
        """Return accuracy and NLL on the held-out images.

        Nothing without such images, or for a model without logits.
        """
        held = self.held.validation
        if held is None or held.labels is None or not hasattr(self.model, "logits"):
            return {}
        with self.average.in_place_of(self.model) if self.average else nullcontext():
            readings = predictions.read(self.model, held.images, self.data, self.device, {"logits"})
        logits = readings["logits"]
        accuracy = float((logits.argmax(1) == held.labels).double().mean())
        return {"accuracy": accuracy, "nll": float(F.cross_entropy(logits.double(), held.labels))}

    def weights(self) -> dict[str, Tensor]:
        """Return the model's state for evaluation, averaged if the recipe says so."""
        return dict(self.average.state if self.average else self.model.state_dict())

    def is_finite(self) -> bool:
        """Return whether every parameter, buffer and stored chain is a finite number."""
        state = (*self.model.state_dict().values(), *self.chains().values())
        return all(bool(x.isfinite().all()) for x in state)

    def chains(self) -> dict[str, Tensor]:
        """Return the state of the sampler; empty if there is none."""
        return self.sampler.state_dict() if self.sampler else {}

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state that the next iteration depends on."""
        return {
            "iteration": self.iteration,
            "precision": self.execution.precision,
            "model": dict(self.model.state_dict()),
            "average": self.average.state if self.average else {},
            "optimizers": {
                name: optimizer.state_dict() for name, optimizer in self.optimizers.items()
            },
            "sampler": self.chains(),
            "batches": self.batches.state_dict(),
            "generator": self.generator.get_state(),
            "adjustment": list(self.adjustment),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that :meth:`state_dict` returned.

        Raises:
            CheckpointError: if the state belongs to another model, dataset, sampler or kind of
                device.
        """
        random = state["generator"].cpu()
        if len(random) != len(self.generator.get_state()):
            raise CheckpointError(
                f"The training began on another kind of device than {self.device.type}, whose "
                "random numbers differ, so that it cannot go on here. Continue it there "
                "(--device), or start it anew in another --store."
            )
        if state["precision"] != self.execution.precision:
            self._prepare(state["precision"])
        load_weights(self.model, state["model"])
        if self.average:
            self.average.load_state_dict(state["average"])
        if self.sampler:
            self.sampler.load_state_dict(state["sampler"])
        for name, optimizer in self.optimizers.items():
            load_optimizer(optimizer, state["optimizers"][name])
        self.batches.load_state_dict(state["batches"])
        self.adjustment = Adjustment(*state["adjustment"])
        self.iteration = state["iteration"]
        self.generator.set_state(random)


def _judged(energies: Energies, parts: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the columns that the guard judges.

    Means that are parts of the loss are left out.
    """
    means = {"energy_data": energies.data.mean(), "energy_samples": energies.samples.mean()}
    if "joint_energy_data" in parts:
        means = {}
    highest = {HIGHEST: energies.samples.max(), HIGHEST_DATA: energies.data.max()}
    return {name: mean for name, mean in means.items() if name not in parts} | highest


def make_sampler(model: Any, data: DataSpec, recipe: Recipe, train: Split) -> Sampler | None:
    """Make the recipe's sampler; None for training without chains.

    Raises:
        SpecError: if the model needs a sampler and the recipe names none, or if it does not fit
            into the memory.
    """
    if getattr(model, "chains", "none") == "none":
        return None
    if not recipe.chains.sampler:
        raise SpecError(
            f"The recipe {recipe.label} names no sampler, and a {type(model).__name__} is trained "
            "with chains. Choose another recipe, or name one: --set chains.sampler=pcd."
        )
    return chain.make(registry.resolve("samplers", recipe.chains.sampler), data, train)
