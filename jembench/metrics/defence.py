"""What stands between an attacker and a model's answer: nothing, or some steps of the model's own chain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jembench import seeds
from jembench.attacks.refinement import Refined
from jembench.attacks.target import Target
from jembench.errors import SpecError
from jembench.interfaces import Capability, Evaluation, Planned
from jembench.sampling.chain import require_chains
from jembench.spec import Scalar

SECOND_ORDER = 4
"""Network passes for the gradient through one step of a chain, in place of one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Defence:
    """``refine`` steps of the model's chain from the image (JEM-k), the mean over ``eot`` chains, and their gradient.

    Grathwohl et al. (2020), arXiv:1912.03263, section 5.4 and Appendix G.
    """

    refine: int = 0
    eot: int = 5
    grad: Literal["through", "bpda", "none"] = "through"  # none: for attacks that take none

    def __post_init__(self) -> None:
        if self.refine < 0 or self.eot < 1:
            raise SpecError(
                f"An attack has refine={self.refine} and eot={self.eot}; it must be at least 0 steps and 1 chain."
            )

    @property
    def requires(self) -> frozenset[Capability]:
        """What a model must give; whether it has chains, its fit alone knows."""
        return frozenset({"logits", "energy", "samples"} if self.refine else {"logits"})

    @property
    def identity(self) -> dict[str, Scalar]:
        """For the protocol."""
        if not self.refine:
            return {"refine": 0}
        gradient: dict[str, Scalar] = {} if self.grad == "none" else {"grad": self.grad}
        return {"refine": self.refine, "eot": self.eot, **gradient}

    @property
    def passes(self) -> int:
        """Through the network, for one gradient."""
        if not self.refine:
            return 1
        return self.eot * (self.refine * (SECOND_ORDER if self.grad == "through" else 1) + 1)

    def check(self, planned: Planned) -> None:
        """Whether there will be chains to refine by.

        Raises:
            NotApplicable: if there are to be, and the model is trained without.
        """
        if self.refine:
            require_chains(planned.sampler)

    def target(self, evaluation: Evaluation, purpose: str) -> Target:
        """The model as an attack sees it, with random numbers of its own for each purpose.

        Raises:
            NotApplicable: if images are to be refined, and the model was trained without chains.
        """
        if not self.refine:
            return Target(evaluation.model, evaluation.data)
        sampler = require_chains(evaluation.sampler)
        seed = evaluation.generator(f"refinement {purpose}").initial_seed()
        refined = Refined(
            evaluation.model,
            sampler,
            steps=self.refine,
            chains=self.eot,
            grad="bpda" if self.grad == "none" else self.grad,
            generator=seeds.seeded(seed, evaluation.device),
        )
        return Target(refined, evaluation.data)
