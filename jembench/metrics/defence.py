"""What stands between an attacker and a model's answer: nothing, noise, or some steps of the model's own chain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from jembench.catalog.spec import Scalar
from jembench.errors import SpecError
from jembench.interfaces import Capability

if TYPE_CHECKING:
    from jembench.attacks.target import Target
    from jembench.interfaces import Evaluation, Planned

SECOND_ORDER = 4
"""Network passes for the gradient through one step of a chain, in place of one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Defence:
    """``refine`` steps of the model's chain from the image (JEM-k), the mean over ``eot`` chains, and their gradient.

    Grathwohl et al. (2020), arXiv:1912.03263, section 5.4 and Appendix G. Each chain begins at the image with Gaussian
    noise of standard deviation ``data_noise`` on [-1, 1], new at each answer, as in the authors' code. ``smooth`` is
    that of randomised smoothing on [0, 1], of any classifier: Salman et al. (2019), arXiv:1906.04584.
    """

    refine: int = 0
    eot: int = 5
    grad: Literal["through", "bpda", "none"] = "through"  # none: for attacks that take none
    data_noise: float = 0.0
    smooth: float = 0.0

    def __post_init__(self) -> None:
        if self.smooth and (self.refine or self.data_noise):
            raise SpecError(
                f"An attack has smooth={self.smooth:g}, refine={self.refine} and data_noise={self.data_noise:g}; smooth"
                " stands alone."
            )

    @property
    def requires(self) -> frozenset[Capability]:
        """What a model must give; whether it has chains, its fit alone knows."""
        return frozenset({"logits", "energy", "samples"} if self.refine else {"logits"})

    @property
    def identity(self) -> dict[str, Scalar]:
        """For the protocol."""
        if not self.is_random:
            return {"refine": 0}
        of_chains: dict[str, Scalar] = {} if self.grad == "none" or not self.refine else {"grad": self.grad}
        noise = {"data_noise": f"{self.data_noise:g}"} if self.data_noise else {}
        smooth = {"smooth": f"{self.smooth:g}"} if self.smooth else {}
        return {"refine": self.refine, "eot": self.eot, **of_chains, **noise, **smooth}

    def rule(self, *, searched: bool = True) -> Mapping[str, Scalar]:
        """For the protocol, where answers are random: how many must be wrong for an image to count as broken.

        In the search, and when it is looked at again. An image that is wrong half of the time withstands, so the
        accuracy that is expected of one answer stands beside.
        """
        from jembench.attacks.target import AGAIN, SURE
        from jembench.attacks.threat import VERIFICATIONS

        if not self.is_random:
            return {}
        verified: dict[str, Scalar] = {"verified": f"{VERIFICATIONS // 2 + 1}/{VERIFICATIONS}"}
        return {"sure": f"{int(SURE * AGAIN) + 1}/{AGAIN}", **verified} if searched else verified

    @property
    def is_random(self) -> bool:
        """Whether the answer to an image is another one each time."""
        return bool(self.refine or self.data_noise or self.smooth)

    @property
    def passes(self) -> int:
        """Through the network, for one gradient."""
        if not self.is_random:
            return 1
        return self.eot * (self.refine * (SECOND_ORDER if self.grad == "through" else 1) + 1)

    def check(self, planned: Planned) -> None:
        """Whether there will be chains to refine by, and gradients for an attack that takes them.

        Raises:
            NotApplicable: if not.
        """
        from jembench.models.capabilities import require_gradients
        from jembench.sampling.chain import require_chains

        if self.grad != "none":
            require_gradients(planned.differentiable)

        if self.refine:
            require_chains(planned.sampler)

    def target(self, evaluation: Evaluation, purpose: str) -> Target:
        """The model as an attack sees it, with random numbers of its own for each purpose.

        Raises:
            NotApplicable: if images are to be refined, and the model was trained without chains.
        """
        from jembench import seeds
        from jembench.attacks.refinement import Refined
        from jembench.attacks.target import Target
        from jembench.data.pixels import noise_to_model
        from jembench.sampling.chain import require_chains

        if not self.is_random:
            return Target(evaluation.model, evaluation.data.spec)
        low, high = evaluation.data.spec.bounds
        noise = self.smooth * (high - low) or noise_to_model(self.data_noise, (low, high))
        sampler = require_chains(evaluation.sampler) if self.refine else None
        seed = evaluation.services.generator(f"refinement {purpose}").initial_seed()
        refined = Refined(
            evaluation.model,
            evaluation.data.spec,
            sampler,
            steps=self.refine,
            chains=self.eot,
            grad="bpda" if self.grad == "none" else self.grad,
            generator=seeds.seeded(seed, evaluation.device),
            noise=noise,
            smooth=bool(self.smooth),
        )
        return Target(refined, evaluation.data.spec)
