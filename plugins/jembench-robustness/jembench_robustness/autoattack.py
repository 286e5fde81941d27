"""AutoAttack, by the code of its authors, the package pyautoattack.

Croce & Hein (2020), arXiv:2003.01690.

Legend: N images, C channels, H height, W width, K classes.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from logging.handlers import BufferingHandler
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

from jembench.attacks import eps
from jembench.metrics import attacks, shards
from jembench.plugin import Estimate, NotApplicable, Range, SpecError

if TYPE_CHECKING:
    from jembench.attacks.target import Target
    from jembench.interfaces import Evaluation, Planned

Version = Literal["standard", "rand"]

MEMBERS: Mapping[Version, tuple[str, ...]] = {
    "standard": ("apgd-ce", "apgd-t", "fab-t", "square"),
    "rand": ("apgd-ce", "apgd-dlr"),
}
"""The attacks of a version, in order; each attacks the images that no earlier attack has broken."""

CLASSES: Mapping[Version, int] = {"standard": 4, "rand": 3}
"""The least number of classes, since the loss has the third and, if targeted, the fourth largest
logit in its denominator.
"""

STEPS: Mapping[Version, int] = {"standard": 3_877, "rand": 4_040}
"""The cost of an image that withstands, in passes forward and backward: for ``standard`` 101 + 909
+ 900, and 5,900 forward passes that cost a third each; for ``rand`` 2 x 101 x 20 draws.
"""

MISCLASSIFIED, STANDING = -1, -2
"""Values of the array ``by`` for images that no attack has broken."""

MASKED = 0.002
"""The share of images that only the square attack breaks, above which gradients are suspicious."""

LEAST_SIDE = 5
"""The least height and width for the square attack in L2, which divides images into five parts."""


class Check(NamedTuple):
    """A warning of pyautoattack."""

    said: str  # a part of the warning's text
    verdict: str


EXCLUDED = "RobustBench's rules exclude such models."
CHECKS: Mapping[str, Check] = {
    "random": Check(
        "randomized defense",
        f"Predictions of the same image differ: use version=rand of autoattack. {EXCLUDED}",
    ),
    "dynamic": Check(
        "dynamic defense",
        f"The model takes gradients to classify: AutoAttack is then not enough. {EXCLUDED}",
    ),
    "zero-gradients": Check(
        "zero gradient", f"The gradient of the loss is 0 at some images. {EXCLUDED}"
    ),
    "probabilities": Check(
        "probability distribution", "The logits are probabilities, which hide gradients."
    ),
}
"""The checks of pyautoattack before and during its attacks, by the names of their arrays."""


@dataclass(frozen=True, kw_only=True)
class AutoAttack(attacks.Attack):
    """Accuracy in % under AutoAttack within ``eps``, by its authors' code.

    The code is the package pyautoattack.

    ``version=standard``, for models whose prediction for an image never varies, runs automatic PGD
    on the cross-entropy and, for 9 target classes, on the difference of logits ratio, FAB for the
    same targets, and the square attack with 5,000 queries. ``version=rand`` runs automatic PGD on
    two losses with gradients averaged over 20 draws. The default is ``rand`` with refinement, data
    noise or smoothing, else ``standard``. With K < 10 classes there are K - 1 targets.
    Misclassified images count as broken. Results are those of ``run_standard_evaluation`` for a
    shard of images, with a seed derived from the shard's number. The details give the number of
    images that each attack broke first; pyautoattack's checks are reported as suspicious. Croce &
    Hein (2020), arXiv:2003.01690.
    """

    eps: str = field()  # required
    norm: eps.Norm = "linf"
    version: Version | None = None
    grad: attacks.Gradient = "through"
    resamples: Annotated[int, Range(least=0)] = 0
    name: ClassVar[str] = "autoattack"
    searches: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        eps.parse_eps(self.eps)
        if self.version == "standard" and self.is_random:
            raise SpecError(
                "version of autoattack is standard, for models whose prediction for an image "
                "never varies; with refine, data_noise or smooth predictions are random. Leave it "
                "out, or write version=rand."
            )

    @property
    def label(self) -> str:
        """The label of the value: ``autoattack-linf@8/255``."""
        return f"{self.name}-{self.norm}@{self.eps}"

    @property
    def chosen(self) -> Version:
        """The version that runs."""
        return self.version or ("rand" if self.is_random else "standard")

    @property
    def protocol_options(self) -> dict[str, Any]:
        """The parts of the protocol."""
        return {
            **super().protocol_options,
            "norm": self.norm,
            "eps": self.eps,
            "version": self.chosen,
        }

    @property
    def passes(self) -> int:
        """The number of passes through the network."""
        return self.spent.images * STEPS[self.chosen] * self.passes_each

    def check(self, planned: Planned) -> None:
        """Check that eps and the attacks are possible for the images.

        Raises:
            SpecError: if eps exceeds the largest distance between two images.
            NotApplicable: if there are too few classes or pixels for the attacks.
        """
        eps.check_eps(self.eps, self.norm, planned.spec.dimensions)
        if planned.spec.num_classes < CLASSES[self.chosen]:
            raise NotApplicable(
                f"AutoAttack {self.chosen} needs {CLASSES[self.chosen]} classes for the "
                f"difference of logits ratio, and {planned.spec.name} has "
                f"{planned.spec.num_classes}."
            )
        side = min(planned.spec.shape[1:])
        if self.norm == "l2" and self.chosen == "standard" and side < LEAST_SIDE:
            raise NotApplicable(
                f"The square attack in L2 needs images of {LEAST_SIDE} x {LEAST_SIDE} pixels or "
                "more."
            )

    def find(self, evaluation: Evaluation, shard: shards.Shard, target: Target) -> attacks.Found:
        """Attack each image until one of the attacks breaks it.

        Raises:
            ValueError: if an attack returns an image that is farther away than eps.
        """
        import torch

        from jembench.parts import threat

        size = eps.parse_eps(self.eps)
        attack = self._attack_on(target, shard, size)
        adversarial = shard.x.clone()
        by = torch.full_like(shard.y, STANDING)
        by[target.classes(shard.x) != shard.y] = MISCLASSIFIED
        # each attack on the images that still stand
        with _contained(attack) as warnings:
            for place, member in enumerate(MEMBERS[self.chosen]):
                left = (by == STANDING).nonzero().flatten()
                if not len(left):
                    break
                attack.attacks_to_run = [member]
                x = shard.x[left]
                y = shard.y[left]
                made, predicted = attack.run_standard_evaluation(x, y, batch_size=len(x))
                adversarial[left] = made
                by[left[predicted != y]] = place
        farthest = float(threat.distance(shard.x, adversarial, self.norm).max())
        rounding = 10 * eps.rounding(self.norm, target.data.dimensions)
        if farthest > size + rounding:
            raise ValueError(
                f"pyautoattack returned an image at a distance of {farthest:g}, beyond eps {size:g}"
            )
        # each image holds the checks of its shard
        arrays = {"by": by}
        for name, check in CHECKS.items():
            failed = any(check.said in warning for warning in warnings)
            arrays[name] = torch.full_like(by, failed, dtype=torch.bool)
        return attacks.Found(adversarial, by > STANDING, arrays)

    def _attack_on(self, target: Target, shard: shards.Shard, size: float) -> Any:
        """Return pyautoattack's attack within a size, with a seed of the shard."""
        import pyautoattack

        from jembench.parts import seeds

        seed = seeds.derive(0, f"robustness/{self.name} {shard.number}") % 2**31
        norm = {"linf": "Linf", "l2": "L2"}[self.norm]
        options = {"version": self.chosen, "device": shard.x.device}
        attack = pyautoattack.AutoAttack(target.logits, norm=norm, eps=size, seed=seed, **options)
        # an image has at most K - 1 target classes
        targets = min(attack.fab.n_target_classes, target.data.num_classes - 1)
        attack.fab.n_target_classes = attack.apgd_targeted.n_target_classes = targets
        attack.verbose = False
        return attack

    def details(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Return how many images each attack broke first, and the failed checks."""
        by = arrays["by"][arrays["found"]]
        members = MEMBERS[self.chosen]
        first = {member: int((by == place).sum()) for place, member in enumerate(members)}
        failed = [check for name, check in CHECKS.items() if arrays[name].any()]
        suspicious = [check.verdict for check in failed]
        if first.get("square", 0) > MASKED * len(arrays["by"]):
            suspicious.append(
                f"The square attack, which uses no gradient, broke {first['square']} images that "
                "the attacks by gradients did not."
            )
        broken = {f"broken-by-{member}": count for member, count in first.items()}
        return {**broken, "suspicious": suspicious}

    def estimates(self, arrays: Mapping[str, Any]) -> dict[str, Estimate]:
        """Return the accuracy within eps."""
        correct = ~arrays["found"]
        return dict(attacks.accuracies(self.label, arrays, correct, arrays["wrong"]))


@contextmanager
def _contained(attack: Any) -> Iterator[list[str]]:
    """Yield the warnings of pyautoattack, then restore the global state.

    The package logs, seeds the global random generators, and counts calls of gradients by a tracer
    and in a global table.
    """
    import torch
    from pyautoattack import checks

    told = BufferingHandler(sys.maxsize)
    log = logging.Logger("autoattack")
    log.addHandler(told)
    for logging_attack in (attack, attack.apgd, attack.apgd_targeted):
        logging_attack.logger = log
    tracer = sys.gettrace()
    warnings: list[str] = []
    checks.funcs.update(dict.fromkeys(checks.funcs, 0))
    try:
        devices = range(torch.cuda.device_count())
        with torch.random.fork_rng(devices=devices):
            yield warnings
    finally:
        sys.settrace(tracer)
        records = [record for record in told.buffer if record.levelno >= logging.WARNING]
        warnings += [record.getMessage() for record in records]
