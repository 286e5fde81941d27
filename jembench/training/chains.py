"""The chains of a training, which draw the samples of its loss.

Legend: B batch.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from jembench import seeds
from jembench.catalog import registry
from jembench.errors import SpecError
from jembench.experiment.recipe import Recipe
from jembench.interfaces import Batch, DataSpec, Negatives, Sampler, Split
from jembench.models import execution
from jembench.models.energies import energy_function
from jembench.sampling import chain
from jembench.training import processes
from jembench.training.functions import Functions


class Chains:
    """A sampler, and the random numbers of its chains, from :meth:`begin` on.

    In a group, each process runs its part of the chains.

    Args:
        model: whose energy moves the chains.
        data: the description of the images.
        recipe: how to train.
        train: the images to train on.
        sizes: of the batches ``marginal`` and ``labelled``.
        seed: the random seed of the training.
        device: where chains are run.

    Attributes:
        sampler: None: training without chains.
        conditional: whether the loss needs samples of p(x|y).
        count: the number of chains that an iteration runs, all processes together.

    Raises:
        SpecError: if the model needs a sampler and the recipe names none, or if it does not fit
            into the memory.
    """

    def __init__(
        self,
        model: Any,
        data: DataSpec,
        recipe: Recipe,
        train: Split,
        sizes: Mapping[str, int],
        *,
        seed: int,
        device: torch.device,
    ) -> None:
        self.model, self.classes, self.recipe = model, data.num_classes, recipe
        self.seed, self.device, self.group = seed, device, processes.group
        self._own_noise = seeds.generator(seed, "own chains", device)  # of this process in a group
        self.sampler = make_sampler(model, data, recipe, train)
        self.conditional = getattr(model, "chains", "none") == "conditional"
        self.count = 0
        if self.sampler:
            self.count = sizes["labelled" if self.conditional else "marginal"]

    def check_batch(self) -> None:
        """Check that the sampler can run a batch of chains.

        Raises:
            SpecError: if the batch is too large.
        """
        if self.sampler and hasattr(self.sampler, "check_batch"):
            conditional = self.conditional or self.recipe.chains.conditional
            self.sampler.check_batch(self.count, conditional=conditional)

    def begin(self, again: str) -> None:
        """Start the random stream, with a seed derived from ``again``."""
        self.generator = seeds.generator(self.seed, f"chains{again}", self.device)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the state of the sampler; empty if there is none."""
        return self.sampler.state_dict() if self.sampler else {}

    def negatives(
        self, batch: Batch, functions: Functions, steps: int, chance: Callable[[str], str]
    ) -> Negatives | None:
        """Return the ends of this process's chains.

        Args:
            batch: the batch of all processes.
            functions: of the training.
            steps: the length of a chain.
            chance: gives this process's random numbers of an iteration their purpose.
        """
        if self.sampler is None:
            return None
        n, y = self.count, None
        if self.conditional:
            y = batch.y_labelled
        elif self.recipe.chains.conditional:
            y = torch.randint(self.classes, (n,), generator=self.generator, device=self.device)
        train = self.recipe.chains.mode == "train"
        run = functions.graph.run if functions.graph else chain.run
        with execution.mode(self.model, train=train), execution.frozen(self.model):
            state = self.sampler.init(n, y, generator=self.generator)
            part, noise = self.group.cut(state), self._noise(chance)
            ends = run(self.sampler, part, functions.grad_energy, noise, steps)
            state = self.group.gather(ends)
            self.sampler.finish(state)
        classes = state.y if self.conditional else None
        return self.group.cut(Negatives(state.x, classes))

    def _noise(self, chance: Callable[[str], str]) -> torch.Generator:
        """Return the random numbers of this process's chains."""
        if self.group.size == 1:
            return self.generator
        return self._own_noise.manual_seed(seeds.derive(self.seed, chance("chains")))

    @torch.no_grad()
    def random_starts(
        self, iteration: int, precision: execution.Precision
    ) -> Float[Tensor, " B"] | None:
        """Return the energies of a batch of new chains, float32.

        It returns None for a model without chains.

        Training is not affected: its random streams are not used, and no statistics of a norm
        change.
        """
        if self.sampler is None:
            return None
        generator = seeds.generator(self.seed, f"guard/{iteration}", self.device)
        n, y = self.recipe.batch_size, None
        if self.conditional:
            y = torch.arange(n, device=self.device) % self.classes
        state = self.sampler.start(n, y, generator=generator)
        with (
            execution.unchanged_buffers(self.model),
            seeds.drawing(self.seed, f"guard/network/{iteration}", self.device),
            execution.mode(self.model, train=self.recipe.chains.mode == "train"),
            execution.autocast(precision, self.device),
        ):
            energy = energy_function(self.model, of_chains=True)
            return energy(state.x, state.y).float()


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
