"""The losses of hybrid models, and the parts that they are logged by.

    L = w_ce CE(f(x_l), y_l)
      + w_px  (mean E(x_p) - mean E(x_q))
      + w_pxy (mean E(x_l, y_l) - mean E(x_q, y_q))

x_p and (x_l, y_l) are two independent draws of the data, x_q the model's samples. (1, 1, 0) is JEM, (0, 0, 1) the
"p(x|y) factored" ablation, (1, 0, 0) a plain classifier. Algorithm 1 of Grathwohl et al. (2020) prints the second
term with the sign of a quantity to be maximised; this is the loss, to be minimised.

Legend: B batch, C channels, H height, W width, K classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from jembench.energies import joint_energy, marginal_energy
from jembench.interfaces import Batch, Classifier, Loss, Negatives


@dataclass(frozen=True, kw_only=True, slots=True)
class Weights:
    """The weight of each term."""

    cross_entropy: float = 0.0
    marginal: float = 0.0  # of log p(x)
    conditional: float = 0.0  # of log p(x|y)


def hybrid_loss(model: Classifier, batch: Batch, negatives: Negatives | None, weights: Weights) -> Loss:
    """The loss above for a model whose energies are read off its logits.

    The parts are ``cross_entropy``, the mean energies E(x) ``energy_data`` and ``energy_samples``, and the mean
    energies E(x, y) ``joint_energy_data`` and ``joint_energy_samples``. Only what has a weight is computed.
    """
    terms: list[Tensor] = []
    parts: dict[str, Tensor] = {}
    if weights.cross_entropy:
        parts["cross_entropy"] = F.cross_entropy(model.logits(batch.x_labelled).float(), batch.y_labelled)
        terms.append(weights.cross_entropy * parts["cross_entropy"])
    if weights.marginal:
        assert negatives is not None
        data = marginal_energy(model.logits(batch.x)).mean()
        samples = marginal_energy(model.logits(negatives.x)).mean()
        parts |= {"energy_data": data, "energy_samples": samples}
        terms.append(weights.marginal * (data - samples))
    if weights.conditional:
        assert negatives is not None
        assert negatives.y is not None
        data = joint_energy(model.logits(batch.x_labelled), batch.y_labelled).mean()
        samples = joint_energy(model.logits(negatives.x), negatives.y).mean()
        parts |= {"joint_energy_data": data, "joint_energy_samples": samples}
        terms.append(weights.conditional * (data - samples))
    return Loss(torch.stack(terms).sum(), {name: part.detach() for name, part in parts.items()})
