"""An ensemble of strong attacks of one size, each on the images that the former ones have not broken.

In the spirit of AutoAttack (Croce & Hein, 2020, arXiv:2003.01690): automatic PGD on cross-entropy and on the difference
of logits ratio, by the Adversarial Robustness Toolbox, then the boundary attack.

Legend: N images, C channels, H height, W width.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from jembench.attacks import eps
from jembench.metrics import attacks
from jembench.metrics.decisions import Boundary
from jembench.metrics.pgd import PGD
from jembench.plugin import Estimate, Range, Unavailable, share

if TYPE_CHECKING:
    from torch import Tensor

    from jembench.attacks.target import Target
    from jembench.interfaces import Evaluation, Planned

Member = Literal["apgd-ce", "apgd-dlr", "boundary"]
MEMBERS: tuple[Member, ...] = ("apgd-ce", "apgd-dlr", "boundary")

LOSSES: Mapping[Member, str] = {"apgd-ce": "cross_entropy", "apgd-dlr": "difference_logits_ratio"}

MISCLASSIFIED, STANDING = -1, -2
"""Values of the array ``by`` for images that no attack has broken."""


@dataclass(frozen=True, kw_only=True)
class Ensemble(PGD):
    """Accuracy in % under the worst of automatic PGD, on two losses, and the boundary attack, all within ``eps``.

    In the spirit of AutoAttack, by the Adversarial Robustness Toolbox. Misclassified images count as broken. The
    details give the number of images that each attack broke first.
    """

    eps: str = field()  # it must be given
    queries: attacks.OptionalCount = None
    resamples: Annotated[int, Range(least=0)] = 0
    name: ClassVar[str] = "ensemble"
    searches: ClassVar[bool] = False

    @property
    def boundary(self) -> Boundary:
        """The member without gradients."""
        return Boundary(budget=self.budget, queries=self.queries)

    @property
    def protocol_options(self) -> dict[str, Any]:
        """The parts of the protocol."""
        members = {"queries": self.boundary.spent.queries, "members": "+".join(MEMBERS)}
        return {**super().protocol_options, **members}

    def check(self, planned: Planned) -> None:
        """Check that eps is not larger than the largest distance of two images, and that the toolbox is installed.

        Raises:
            SpecError: if eps is larger.
            Unavailable: if the Adversarial Robustness Toolbox cannot be imported.
        """
        super().check(planned)
        toolbox()

    def find(self, evaluation: Evaluation, shard: attacks.Shard, target: Target) -> attacks.Found:
        """Attack each image until one of the attacks breaks it within eps.

        Raises:
            Unavailable: if the Adversarial Robustness Toolbox cannot be imported.
        """
        import torch

        from jembench.parts import seeds, threat

        size = eps.parse_eps(self.eps)
        adversarial = shard.x.clone()
        by = torch.where(target.deceived(shard.x, shard.y), MISCLASSIFIED, STANDING)
        seed = seeds.derive(0, f"robustness/{self.name} {shard.number}") % 2**31
        for place, member in enumerate(MEMBERS):
            left = (by == STANDING).nonzero().flatten()
            if not len(left) or (member == "apgd-dlr" and target.data.num_classes < 3):
                continue  # the denominator of the ratio contains the third largest logit
            x, y = shard.x[left], shard.y[left]
            if member == "boundary":
                some = replace(shard, index=shard.index[left.cpu()], x=x, y=y)
                made = self.boundary.find(evaluation, some, target).adversarial
            else:
                with _seeded(seed + place):
                    made = self._automatic_pgd(target, x, y, LOSSES[member], size)
            good = (threat.distance(x, made, self.norm) <= size) & target.deceived(made, y)
            adversarial[left[good]], by[left[good]] = made[good], place
        return attacks.Found(adversarial, by > STANDING, {"by": by})

    def _automatic_pgd(self, target: Target, x: Tensor, y: Tensor, loss: str, size: float) -> Tensor:
        import numpy as np
        import torch

        from jembench.parts import threat

        attack, classifier = toolbox()
        estimator = classifier(
            model=_module(target, x.device),
            loss=torch.nn.CrossEntropyLoss(),
            input_shape=tuple(x.shape[1:]),
            nb_classes=target.data.num_classes,
            clip_values=(0.0, 1.0),
            device_type="cpu",  # of its arrays
        )
        automatic_pgd = attack(
            estimator=estimator,
            norm=np.inf if self.norm == "linf" else 2,
            eps=size,
            eps_step=2 * size,  # as in the paper's section 3
            max_iter=self.spent.steps,
            nb_random_init=self.spent.restarts,
            batch_size=len(x),
            loss_type=loss,
            verbose=False,
        )
        with torch.enable_grad():
            made = automatic_pgd.generate(x.cpu().numpy(), y.cpu().numpy())
        # its own projection exceeds the bounds or the ball by rounding errors
        return threat.project(torch.from_numpy(made).to(x), x, torch.full_like(y, size, dtype=x.dtype), self.norm)

    def details(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Return additional information on the result, with the number of images that each attack broke first."""
        by = arrays["by"][arrays["found"]]
        first = {f"broken-by-{member}": int((by == place).sum()) for place, member in enumerate(MEMBERS)}
        return {**super().details(arrays), **first}

    def estimates(self, arrays: Mapping[str, Any]) -> dict[str, Estimate]:
        """Return the share of images that no attack breaks."""
        return {self.label: share(~arrays["found"], "higher")}


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed the global generators, which the toolbox uses, and restore their state afterwards."""
    import numpy as np
    import torch

    state = np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        try:
            yield
        finally:
            np.random.set_state(state)  # noqa: NPY002


def _module(target: Target, device: Any) -> Any:
    """Return the model under attack on ``device`` as a module with outputs on the device of the images."""
    from torch import nn

    class Module(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return target.logits(x.to(device)).to(x.device)

    return Module().eval()


def toolbox() -> tuple[Any, Any]:
    """Return automatic PGD and the classifier that it attacks, from the Adversarial Robustness Toolbox.

    Raises:
        Unavailable: if it cannot be imported.
    """
    try:
        from art.attacks.evasion import AutoProjectedGradientDescent
        from art.estimators.classification import PyTorchClassifier
    except ImportError as error:
        raise Unavailable(
            f"The Adversarial Robustness Toolbox cannot be imported ({error}). The ensemble needs it for automatic "
            "PGD: `pip install adversarial-robustness-toolbox` installs it."
        ) from error
    logging.getLogger("art").setLevel(logging.ERROR)  # it warns about the loss of every model
    return AutoProjectedGradientDescent, PyTorchClassifier
