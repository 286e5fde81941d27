"""Energies of clean, adversarial and generated images.

They show how attacks and chains change log p(x) of a classifier.

Mirza et al. (2024), arXiv:2407.06315, section 3: for robust classifiers, PGD lowers E(x) and APGD-T
raises E(x). PGD within less than about twice the distance to the boundary raises E(x) too: for two
classes with logits s and -s, s linear in x, E(x) = -log 2 cosh s.

Legend: N images, C channels, H height, W width.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from jembench.attacks import eps
from jembench.interfaces import Generative, Need, Source
from jembench.metrics import attacks, sample_protocol, shards
from jembench.plugin import Estimate, Metric, NotApplicable, Range, mean

if TYPE_CHECKING:
    from torch import Tensor

    from jembench.attacks.target import Target
    from jembench.interfaces import Evaluation, Measurement, Planned

ATTACKS = ("pgd", "apgd-t", "cw")
"""The names of the attacks, with which labels end."""

Count = Annotated[int, Range(least=1)]


@dataclass(frozen=True, kw_only=True)
class EnergyShift(Metric):
    """Mean E(x) - E(x~) of images x and adversarial images x~, in nats.

    Three attacks find adversarial images.

    E(x) is -logsumexp of the logits. A positive shift means that the attack makes images more
    likely.

    - ``pgd``: the last image of ``steps`` of ascent on the cross-entropy within ``eps``, from a
      random start.
    - ``apgd-t``: targeted APGD of AutoAttack within ``eps`` (Croce & Hein, 2020), in ``steps`` for
      each target.
    - ``cw``: the nearest image in L2 that the attack of Carlini & Wagner (2017) finds, at any
      distance, by foolbox.

    An image that ``apgd-t`` or ``cw`` does not break stays unchanged and counts with 0; the details
    say how many images each attack breaks. ``sampler`` draws generated images for the figure, as
    for `is`; without ``sampler``, the model draws them.
    """

    images: Count = 100
    eps: str = "8/255"
    norm: eps.Norm = "linf"
    steps: Count = 20
    sampler: sample_protocol.SamplerSpec = None
    name: ClassVar[str] = "energy-shift"
    requires: ClassVar[frozenset[Need]] = frozenset({"logits", "labels", "gradients"})

    def __post_init__(self) -> None:
        super().__post_init__()
        eps.parse_eps(self.eps)

    @property
    def protocol_options(self) -> dict[str, Any]:
        """The options of the attacks."""
        options = dict(super().protocol_options)
        options.pop("sampler", None)
        return options

    def check(self, planned: Planned) -> None:
        """Check that the attacks are defined, and that the sampler gives samples.

        Raises:
            SpecError: if eps exceeds the largest distance between two images.
            NotApplicable: for fewer than four classes.
        """
        eps.check_eps(self.eps, self.norm, planned.spec.dimensions)
        if planned.spec.num_classes < 4:
            raise NotApplicable(
                f"Targeted APGD needs 4 classes; {planned.spec.name} has "
                f"{planned.spec.num_classes}."
            )
        if self.sampler:
            planned.samples(Source(sampler=self.sampler))

    def shard_size(self, device: str) -> int:
        """Return the number of images that are attacked together."""
        return attacks.SHARD if device == "cpu" else attacks.GPU_SHARD

    def compute(self, evaluation: Evaluation) -> Measurement:
        """Attack the model, and measure energies."""
        from jembench.attacks.target import Target

        target = Target(evaluation.model, evaluation.data.spec)
        chosen = shards.choose(evaluation, self.images)

        def work(shard: shards.Shard) -> Mapping[str, Tensor]:
            return self._energies(target, shard)

        arrays = shards.in_shards(self, evaluation, chosen, work).whole()
        broken = {}
        for attack in ATTACKS:
            broken[f"broken-by-{attack}"] = int(arrays[f"broken-{attack}"].sum())
        if self.sampler or evaluation.sampler or isinstance(evaluation.model, Generative):
            samples = evaluation.samples(Source(sampler=self.sampler))
            energies = evaluation.predictions.read("energy", samples.images)
            arrays["energy-samples"] = energies.cpu().numpy()
        parts = {**self.protocol_options, "images": len(chosen.images)}
        return self.measurement(evaluation, arrays, parts=parts, details=broken)

    def estimates(self, arrays: Mapping[str, Any]) -> dict[str, Estimate]:
        """Return the mean shift of each attack."""
        clean = arrays["energy-clean"]
        return {
            f"{self.name}-{attack}": mean(clean - arrays[f"energy-{attack}"], "nats")
            for attack in ATTACKS
        }

    def _energies(self, target: Target, shard: shards.Shard) -> dict[str, Tensor]:
        """Return the energies of images and adversarial images, and attacks' successes.

        An attack succeeds if its image is misclassified.
        """
        import torch

        from jembench.parts import marginal_energy

        arrays = {}
        made = {"pgd": self._pgd, "apgd-t": self._apgd_t, "cw": self._cw}
        with torch.no_grad():
            arrays["energy-clean"] = marginal_energy(target.logits(shard.x)).double()
        for attack, attacked in made.items():
            moved = attacked(target, shard)
            with torch.no_grad():
                logits = target.logits(moved)
            arrays[f"energy-{attack}"] = marginal_energy(logits).double()
            arrays[f"broken-{attack}"] = logits.argmax(dim=1) != shard.y
        return arrays

    def _pgd(self, target: Target, shard: shards.Shard) -> Tensor:
        import torch
        from torch.nn import functional as F

        from jembench.attacks import gradient
        from jembench.parts import seeds, threat

        def cross_entropy(at: Tensor) -> Tensor:
            logits = gradient.logits_of(target.model, target.data, at)
            return F.cross_entropy(logits, shard.y, reduction="sum")

        size = eps.parse_eps(self.eps)
        shape = tuple(shard.x.shape[1:])
        drawn = []
        for index in shard.index.tolist():
            generator = seeds.generator(0, f"{self.name}/start {index}")
            drawn.append(threat.in_unit_ball(1, shape, self.norm, generator.device, generator))
        start = shard.x + size * torch.cat(drawn).to(shard.x.device)
        step_size = 2.5 * size / self.steps
        with gradient.settled(target.model, shard.x.device):
            steps = {"steps": self.steps, "step_size": step_size}
            return threat.ascend(cross_entropy, shard.x, size, self.norm, start=start, **steps)

    def _apgd_t(self, target: Target, shard: shards.Shard) -> Tensor:
        import torch
        from pyautoattack.autopgd_base import APGDAttack_targeted

        silent = logging.Logger(self.name)  # drops warnings of vanishing gradients
        silent.addHandler(logging.NullHandler())
        attack = APGDAttack_targeted(
            target.logits,
            n_iter=self.steps,
            norm={"linf": "Linf", "l2": "L2"}[self.norm],
            eps=eps.parse_eps(self.eps),
            seed=shard.number,
            n_target_classes=min(9, target.data.num_classes - 1),
            device=shard.x.device,
            logger=silent,
        )
        devices = range(torch.cuda.device_count())
        with torch.random.fork_rng(devices=devices):
            moved: Tensor = attack.perturb(shard.x, shard.y)
        return moved

    def _cw(self, target: Target, shard: shards.Shard) -> Tensor:
        import torch

        from jembench.attacks import foolbox_bridge

        foolbox = foolbox_bridge.foolbox()
        attack = foolbox.attacks.L2CarliniWagnerAttack(**CW)
        criterion = foolbox.criteria.Misclassification(shard.y)
        model = foolbox_bridge.wrapped(target.logits, shard.x.device)
        _, moved, succeeded = attack(model, shard.x, criterion, epsilons=None)
        # where the attack fails, foolbox returns a black image
        return torch.where(succeeded[:, None, None, None], moved, shard.x)


CW = {"binary_search_steps": 5, "steps": 100, "stepsize": 0.1, "initial_const": 1.0}
"""The search of Carlini & Wagner's attack, shorter than foolbox's default."""
