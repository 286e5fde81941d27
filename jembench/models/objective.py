"""The losses of hybrid models and their logged parts.

    L = w_ce CE(f(x_l), y_l)
      + w_px  (mean E(x_p) - mean E(x_q))
      + w_pxy (mean E(x_l, y_l) - mean E(x_q, y_q))

x_p and (x_l, y_l) are draws of the data, independent unless the recipe shares one draw; x_q are the
model's samples. (1, 1, 0) is JEM, (0, 0, 1) the "p(x|y) factored" ablation, (1, 0, 0) a plain
classifier. Algorithm 1 of Grathwohl et al. (2020) prints the second term with the sign of a
quantity to be maximised; this is the loss, to be minimised.

Legend: B batch, C channels, H height, W width, K classes.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from jembench.errors import PluginError, Remark
from jembench.interfaces import (
    Batch,
    Chains,
    Classifier,
    DataSpec,
    Energies,
    Energy,
    Loss,
    Negatives,
    Trainable,
)
from jembench.models.capabilities import capabilities
from jembench.models.energies import (
    JointEnergyModel,
    LogitModel,
    accepts,
    joint_energy,
    logits_function,
    marginal_energy,
)
from jembench.models.execution import at_least_float32
from jembench.models.nets import check_net


@dataclass(frozen=True, kw_only=True, slots=True)
class Weights:
    """The weight of each term."""

    cross_entropy: float = 0.0
    marginal: float = 0.0  # of log p(x)
    conditional: float = 0.0  # of log p(x|y)
    # the first iterations of a training, over which the weight of log p(x) rises from 0
    ramp: int = 0


def hybrid_loss(
    model: Classifier, batch: Batch, negatives: Negatives | None, weights: Weights
) -> Loss:
    """Return the loss above for a model whose energies follow from its logits.

    The parts are ``cross_entropy``, the mean energies E(x) ``energy_data`` and ``energy_samples``,
    and the mean energies E(x, y) ``joint_energy_data`` and ``joint_energy_samples``. Only terms
    with a weight are computed, and each image passes through the network once.
    """
    logits = _logits_of_terms(model, batch, negatives, weights)
    terms: list[Tensor] = []
    parts: dict[str, Tensor] = {}
    energies = of_chains = None
    if weights.cross_entropy:
        surprise = F.cross_entropy(at_least_float32(logits["labelled"]), batch.y_labelled)
        parts["cross_entropy"] = surprise
        terms.append(weights.cross_entropy * surprise)
    if weights.conditional:
        assert negatives is not None
        assert negatives.y is not None
        joint_data = joint_energy(logits["labelled"], batch.y_labelled)
        joint_samples = joint_energy(logits["samples"], negatives.y)
        energies = of_chains = Energies(joint_data, joint_samples)
        terms.append(weights.conditional * _gap(energies, parts, "joint_energy"))
    if weights.marginal:
        energies = Energies(marginal_energy(logits["data"]), marginal_energy(logits["samples"]))
        weight = weights.marginal * batch.ramp(weights.ramp)
        terms.append(weight * _gap(energies, parts, "energy"))
    detached = {name: part.detach() for name, part in parts.items()}
    return Loss(torch.stack(terms).sum(), detached, energies, of_chains)


def _logits_of_terms(
    model: Classifier, batch: Batch, negatives: Negatives | None, weights: Weights
) -> dict[str, Tensor]:
    """Return the logits of ``data``, ``samples`` and ``labelled`` images, where terms need them."""
    images: dict[str, Tensor] = {}  # in the order of the passes, see logits_of_each
    if weights.marginal:
        images["data"] = batch.x
    if weights.marginal or weights.conditional:
        assert negatives is not None
        images["samples"] = negatives.x
    if weights.cross_entropy or weights.conditional:
        images["labelled"] = batch.x_labelled

    # no second pass if both terms share images, or if the data passed before the chains
    shared = "data" in images and batch.x is images.get("labelled")
    passed: dict[str, Tensor] = {}
    if "data" in images and batch.logits is not None:
        passed["data"] = batch.logits
    if shared or passed:
        del images["data"]
    logits = passed | dict(zip(images, logits_of_each(model, list(images.values())), strict=True))
    if shared:
        logits["data"] = logits["labelled"]
    return logits


def _gap(energies: Energies, parts: dict[str, Tensor], name: str) -> Tensor:
    """Return mean E(data) - mean E(samples), and add both to the parts."""
    parts[f"{name}_data"] = energies.data.mean()
    parts[f"{name}_samples"] = energies.samples.mean()
    return parts[f"{name}_data"] - parts[f"{name}_samples"]


def checked_loss(loss: Loss, model: Any) -> Loss:
    """Return a loss, after a check of shapes that PyTorch would broadcast without an error.

    Raises:
        PluginError: if the total or a part is no single real number, or the energies are not (B,).
    """
    expected = {"total": (loss.total, 0)} | {name: (part, 0) for name, part in loss.parts.items()}
    if loss.energies is not None:
        expected |= {"energies.data": (loss.energies.data, 1)}
        expected |= {"energies.samples": (loss.energies.samples, 1)}
    for name, (value, dimensions) in expected.items():
        if value.ndim != dimensions or value.is_complex():
            wanted = "(B,)" if dimensions else "()"
            raise PluginError(
                f"The loss of {type(model).__name__} has {name} of shape {tuple(value.shape)}, "
                f"{value.dtype}; it must be {wanted} and real."
            )
    return loss


def logits_of_each(model: Classifier, images: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return f(x) of several batches, in one pass without batch norm.

    With batch norm, logits depend on the other images of a pass. Each batch then has a pass of its
    own, and the order matters, since the running statistics that evaluation uses are mostly those
    of the last pass. The order is data, samples, labelled images, as in the code of JEM, which has
    the samples last only for the pure loss of p(x|y). In the code of JEM++ and SADA-JEM the data
    pass before the chains (``Batch.logits``), which also change the running statistics.
    """
    logits = logits_function(model, 0)
    if has_batch_norm(model):
        return tuple(map(logits, images))
    return torch.split(logits(torch.cat(list(images))), [len(x) for x in images])


def has_batch_norm(model: Classifier) -> bool:
    """Return whether a layer of the model normalises images by the statistics of their batch."""
    return any(isinstance(module, _BatchNorm) for module in cast(nn.Module, model).modules())


class PlainClassifier(LogitModel):
    """Any network that returns logits, trained by cross-entropy.

    The network may be of torchvision, timm or Hugging Face, or the user's own.
    """

    chains: Chains = "none"

    def training_loss(self, batch: Batch, negatives: Negatives | None) -> Loss:
        """Return CE(f(x_l), y_l)."""
        return hybrid_loss(self, batch, negatives, Weights(cross_entropy=1))


def as_model(made: Any, data: DataSpec, name: str) -> Any:
    """Return a network that lacks a model's methods as a classifier.

    Such a network is checked on two images. Other modules are returned unchanged.

    A model that is not trained here and has only E(x, y) becomes a :class:`JointEnergyModel`.
    Weights in half precision become float32, as images are.

    Args:
        made: the result of a model's factory.
        data: the description of the images.
        name: of the network, for errors.

    Raises:
        PluginError: if it fails on the images, or does not give a logit per class.
    """
    if isinstance(made, nn.Module):
        to_full_precision(made, name)
    if not isinstance(made, nn.Module) or isinstance(made, Trainable):
        return made
    if capabilities(made):
        if isinstance(made, Energy) and data.num_classes and not accepts(made.energy, 1):
            return JointEnergyModel(made, data.num_classes)
        return made
    check_net(name, made, data)
    return PlainClassifier(made)


def to_full_precision(model: nn.Module, name: str) -> None:
    """Convert weights in half precision to float32, with a remark."""
    halves = {weight.dtype for weight in model.parameters()} & {torch.float16, torch.bfloat16}
    if halves:
        model.float()
        kinds = ", ".join(sorted(str(kind).removeprefix("torch.") for kind in halves))
        text = f"The weights of {name} are {kinds}, and are converted to float32."
        warnings.warn(text, Remark, stacklevel=3)
