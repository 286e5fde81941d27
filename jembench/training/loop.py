"""The iterations of a training."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from jembench import seeds
from jembench.interfaces import Batch, Energies, Loss, Negatives
from jembench.interfaces.samplers import Adaptive
from jembench.models import execution
from jembench.models.objective import checked_loss
from jembench.store.checkpoint import load_weights
from jembench.training.guard import HIGHEST, HIGHEST_DATA, Starts
from jembench.training.optimizers import sam_perturbation
from jembench.training.state import TrainingState


class Trainer(TrainingState):
    """A training, as its state and the iterations that change it.

    In a group (:mod:`jembench.training.processes`) the state is the same in all processes, and
    ``window``, ``adjust`` and ``load_state_dict`` are called in all at once.
    """

    def window(self, n: int) -> tuple[list[dict[str, float]], Starts | None]:
        """Run n iterations.

        The host waits for the device only at the end of the n iterations.

        Returns:
            the loss and its parts of each iteration, over the images and chains of all processes,
            and the energies of random starts unless the guard is off.
        """
        rows = [self.iterate() for _ in range(n)]
        sampler = self.chains.sampler
        if isinstance(sampler, Adaptive) and self.iteration % self.recipe.log_every == 0:
            sampler.adapt()
        energies = None
        if self.recipe.guard.mode != "off":
            precision = self.functions.execution.precision
            energies = self.chains.random_starts(self.iteration, precision)
        losses = self._to_host(rows)
        if energies is None:
            return losses, None
        return losses, Starts(float(energies.max()), float(energies.mean()))

    def _to_host(self, rows: Sequence[Mapping[str, Tensor]]) -> list[dict[str, float]]:
        """Return the losses of iterations, over all processes, as numbers."""
        names = list(rows[0])
        own = torch.stack([row[name] for row in rows for name in names]).view(-1, len(names))
        of_all = self.group.gather(own).view(self.group.size, *own.shape)
        values = of_all.mean(0)
        for name in {HIGHEST, HIGHEST_DATA}.intersection(names):
            column = names.index(name)
            values[:, column] = of_all[:, :, column].amax(0)
        return [dict(zip(names, row, strict=True)) for row in values.double().tolist()]

    def iterate(self) -> dict[str, Tensor]:
        """Take a step of each optimiser, and return the losses.

        The losses are still on the device.

        The network's own randomness, such as dropout, depends on the seed and the iteration only,
        also after a resume.
        """
        whole, values = self.batches.draw(), dict[str, Tensor]()
        iteration = torch.full((), float(self.iteration), device=self.device)
        batch = self.group.cut(whole)._replace(iteration=iteration)
        functions, steps = self.functions, self.sampling_steps
        with seeds.drawing(self.seed, self._chance("network"), self.device):
            self.model.train()
            first = batch
            if functions.pass_first:
                with execution.autocast(functions.execution.precision, self.device):
                    first = batch._replace(logits=functions.pass_first(batch.x))
            negatives = self.chains.negatives(whole, functions, steps, self._chance)
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

        ``first`` is the batch with any logits that were computed before the chains.
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
        # frees the last gradients before the maps are allocated
        self.model.zero_grad(set_to_none=True)
        compute = self.functions.losses[phase] if self.iteration else self.phases[phase].loss
        with execution.autocast(self.functions.execution.precision, self.device):
            loss = checked_loss(compute(batch, negatives), self.model)
        total, extremes = loss.total, dict[str, Tensor]()
        if loss.energies is not None:
            extremes = self._watch(loss, loss.of_chains or loss.energies)
            if weight := max(self.recipe.energy_l2, self.adjustment.energy_l2):
                total = total + weight * (
                    loss.energies.data.square().mean() + loss.energies.samples.square().mean()
                )
        parameters = self.phases[phase].parameters
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        total.backward(inputs=trained)  # type: ignore[no-untyped-call]
        self._agree()
        return {f"{phase}_loss".removeprefix("_"): total.detach(), **loss.parts, **extremes}

    def _watch(self, loss: Loss, energies: Energies) -> dict[str, Tensor]:
        """Show energies to an adaptive sampler, and return the columns that the guard judges."""
        detached = Energies(*(values.detach() for values in energies))
        if isinstance(self.chains.sampler, Adaptive):
            self.chains.sampler.observe(self.group.gather(detached))
        if getattr(self.model, "generates", True):
            return _judged(detached, loss.parts)
        return {}  # not judged: outliers may lie anywhere

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
            # the weights of rank 0
            load_weights(self.model, self.group.broadcast(dict(self.model.state_dict())))

    def _chance(self, purpose: str) -> str:
        """Return the purpose of this iteration's random numbers.

        The purpose contains the rank and the number of past remedies.
        """
        return f"{purpose}@{self.group.rank}/{self.adjustment.seeds}/{self.iteration}"


def _judged(energies: Energies, parts: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the columns that the guard judges.

    Means that are parts of the loss are left out.
    """
    columns, (data, samples) = dict[str, Tensor](), energies
    if "joint_energy_data" not in parts:
        if "energy_data" not in parts:
            columns["energy_data"] = data.mean()
        if "energy_samples" not in parts:
            columns["energy_samples"] = samples.mean()
    return columns | {HIGHEST: samples.max(), HIGHEST_DATA: data.max()}
