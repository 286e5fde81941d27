"""Scores for out-of-distribution detection from the features of a classifier.

Features are the input (N, D) of the classifier's last layer. All scores are higher for images that
the model takes to be in-distribution, and are computed in float64. Parameters are estimated on the
training images, without augmentation, as in the papers.

Legend: N images, D features, K classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from jembench.interfaces import Evaluation, Need, Quantity
from jembench.metrics.base import Count, OptionalCount
from jembench.plugin import NotApplicable, Range, SpecError

if TYPE_CHECKING:
    from torch import Tensor, nn

Percentile = Annotated[float, Range(above=0, below=100)]


class LastLayer(NamedTuple):
    """A classifier's last layer, in float64: logits = features W^T + b."""

    weight: Tensor  # (K, D)
    bias: Tensor  # (K,)

    def logits(self, features: Tensor) -> Tensor:
        """Return the logits of features (N, D), (N, K)."""
        return features @ self.weight.T + self.bias


Function = Callable[[LastLayer, "Tensor"], "Tensor"]
"""The function from the last layer and features (N, D) to scores (N,)."""


class FeatureScore(NamedTuple):
    """A score of features and the last layer."""

    function: Function | None = None  # None: not fitted
    # from the last layer, and features and labels of training images
    estimate: Callable[[LastLayer, Tensor, Tensor], Function] | None = None
    requires: frozenset[Need] = frozenset({"logits"})
    reads: frozenset[Quantity] = frozenset()

    def fit(
        self, evaluation: Evaluation, noise: float
    ) -> tuple[FeatureScore, dict[str, str | int]]:
        """Return the score of the model, and the parts of the protocol.

        A score without parameters has no such parts.
        """
        if self.estimate is None:
            return self, {}
        images, labels = evaluation.data.part("train")
        assert labels is not None, "data without labels have no classifier"
        function = self.estimate(*features_of(evaluation, "train", noise), labels)
        return FeatureScore(function), {"fitted_on": "train", "fitted_images": len(images)}

    def scores(self, evaluation: Evaluation, images: str, noise: float) -> Tensor:
        """Return the score of each image, float64 (N,).

        Raises:
            NotApplicable: if the logits are not the output of a linear layer.
        """
        assert self.function is not None, "fit comes first"
        return self.function(*features_of(evaluation, images, noise))


def features_of(evaluation: Evaluation, images: str, noise: float) -> tuple[LastLayer, Tensor]:
    """Return a model's last layer, and images' features, float64 (N, D).

    Raises:
        NotApplicable: if the logits are not the output of a linear layer.
    """
    import torch

    from jembench.data.pixels import content_hash, to_float
    from jembench.models import predictions

    pixels = evaluation.data.images(images)
    data = evaluation.data.spec

    def compute() -> dict[str, Tensor]:
        shown = predictions.noisy(pixels, noise, data.bounds) if noise else pixels

        def one_pass(part: slice) -> tuple[nn.Linear, Tensor]:
            x = shown[part].to(evaluation.device)
            return layer_and_input(evaluation.model, x if noise else to_float(x, data.bounds))

        with torch.no_grad():
            device = evaluation.device
            passes = predictions.in_parts(one_pass, len(pixels), device, data.shape)
            layer = passes[0][0]
            features = torch.cat([features for _, features in passes])
            bias = layer(torch.zeros_like(features[:1]))[0]  # which the layer may lack
            weight = layer.weight.detach().cpu()
            return {"weight": weight, "bias": bias.cpu(), "features": features.cpu()}

    name = f"last-layer-{content_hash(pixels)}-noise={noise:g}"
    kept = evaluation.services.remembered(name, compute)
    weight, bias, features = (kept[key].double() for key in ("weight", "bias", "features"))
    return LastLayer(weight, bias), features


def layer_and_input(model: Any, x: Tensor) -> tuple[nn.Linear, Tensor]:
    """Return the last linear layer, and its input (N, D) for images.

    Raises:
        NotApplicable: if the logits are not the output of a linear layer.
    """
    import torch
    from torch.nn.modules.module import register_module_forward_hook

    calls: list[tuple[nn.Module, tuple[Tensor, ...], Tensor]] = []  # module, inputs, output
    with register_module_forward_hook(lambda *call: calls.append(call)):
        logits = model.logits(x)
    for layer, inputs, output in calls:
        is_logits = output is logits or torch.equal(output, logits)
        if isinstance(layer, torch.nn.Linear) and is_logits:
            return layer, inputs[0]
    raise NotApplicable(
        f"{type(model).__name__}.logits does not end with an nn.Linear layer, whose input it needs."
    )


# --- scores with parameters -----------------------------------------------------------------------


def knn(*, k: Count = 50) -> FeatureScore:
    """Minus the distance of normalised features to the ``k``-th nearest training image.

    Sun et al. (2022), arXiv:2204.06507, section 3. The authors' code takes k = 50 on CIFAR-10 and
    200 on CIFAR-100, and squared distances, which rank images alike.
    """

    def estimate(layer: LastLayer, train: Tensor, labels: Tensor) -> Function:
        import torch
        from torch.nn.functional import normalize

        if k > len(train):
            raise SpecError(
                f"k of knn is {k:,}, and there are {len(train):,} training images. Choose a "
                "smaller k."
            )
        normalised_train = normalize(train)

        def score(layer: LastLayer, features: Tensor) -> Tensor:
            nearness = []
            # 200 MB of distances to 50,000 images at a time
            for part in torch.split(normalize(features), 500):
                distances = torch.cdist(part, normalised_train)
                nearness.append(-distances.kthvalue(k, dim=1).values)
            return torch.cat(nearness)

        return score

    return FeatureScore(estimate=estimate)


def vim(*, dim: OptionalCount = None) -> FeatureScore:
    """The energy score minus the virtual logit.

    The virtual logit is the distance of the features to the principal space of training features.

    Wang et al. (2022), arXiv:2203.10807, section 4: logsumexp f(x) - alpha |P (h - o)|, o = -W^+ b,
    P projects onto all but the ``dim`` leading eigenvectors of the training features, and alpha is
    the mean largest logit of training images over their mean residual. By default ``dim`` is 1,000
    for 2,048 features or more and else 512, as in the authors' code, but half of 512 features or
    fewer. The logits of an energy-based model have a free constant, on which alpha depends.
    """

    def estimate(layer: LastLayer, train: Tensor, labels: Tensor) -> Function:
        import torch

        size = train.shape[1]
        by_size = 1000 if size >= 2048 else 512 if size > 512 else size // 2
        principal = dim or by_size
        if principal >= size:
            raise SpecError(
                f"dim of vim is {principal:,}; it must be less than the number of features, "
                f"{size:,}."
            )
        origin: Tensor = -torch.linalg.pinv(layer.weight) @ layer.bias
        # the eigenvalues ascend
        centred = train - origin
        eigenvectors = torch.linalg.eigh(centred.T @ centred).eigenvectors
        null: Tensor = eigenvectors[:, : size - principal]

        def residual(features: Tensor) -> Tensor:
            in_null = (features - origin) @ null
            return in_null.square().sum(dim=1).sqrt()

        largest = layer.logits(train).amax(dim=1)
        alpha = largest.mean() / residual(train).mean()

        def score(layer: LastLayer, features: Tensor) -> Tensor:
            density = layer.logits(features).logsumexp(dim=1)
            return density - alpha * residual(features)

        return score

    return FeatureScore(estimate=estimate)


def mahalanobis() -> FeatureScore:
    """Minus the squared Mahalanobis distance to the nearest class mean.

    All classes share one covariance.

    Lee et al. (2018), arXiv:1807.03888, equations 1 and 2, on the last layer's input only, without
    the perturbation of the image and the ensemble of layers.
    """

    def estimate(layer: LastLayer, train: Tensor, labels: Tensor) -> Function:
        import torch

        members = torch.nn.functional.one_hot(labels)
        members = members[:, members.any(dim=0)].double()  # of the classes that occur
        counts = members.sum(dim=0)[:, None]
        means = (members.T @ train) / counts
        centred = train - members @ means
        covariance = centred.T @ centred / len(train)
        precision = torch.linalg.pinv(covariance, hermitian=True)

        def score(layer: LastLayer, features: Tensor) -> Tensor:
            distances = []
            for mean in means:
                x = features - mean
                distances.append(((x @ precision) * x).sum(dim=1))
            return -torch.stack(distances).amin(dim=0)

        return score

    return FeatureScore(estimate=estimate)


def react(*, percentile: Percentile = 90.0) -> FeatureScore:
    """The energy score of features clipped at a percentile of training features.

    Sun et al. (2021), arXiv:2111.12797, section 3; the authors choose the 90th percentile.
    """

    def estimate(layer: LastLayer, train: Tensor, labels: Tensor) -> Function:
        import numpy as np

        highest = float(np.percentile(train.numpy(), percentile))

        def score(layer: LastLayer, features: Tensor) -> Tensor:
            logits = layer.logits(features.clamp(max=highest))
            return logits.logsumexp(dim=1)

        return score

    return FeatureScore(estimate=estimate)


# --- scores without parameters --------------------------------------------------------------------


def ash(*, percentile: Percentile = 90.0) -> FeatureScore:
    """The energy score of pruned and scaled features, ASH-S.

    The largest 100 - ``percentile`` percent of an image's features are kept.

    Djurisic et al. (2023), arXiv:2209.09858, algorithm 3: kept features are multiplied by exp(s1 /
    s2), s1 the sum of all features and s2 the sum of the kept features.
    """

    def score(layer: LastLayer, features: Tensor) -> Tensor:
        import torch

        size = features.shape[1]
        kept = max(1, size - round(size * percentile / 100))
        largest, places = features.topk(kept, dim=1)
        share = features.sum(dim=1, keepdim=True) / largest.sum(dim=1, keepdim=True)
        scale = share.exp().nan_to_num()
        pruned = torch.zeros_like(features).scatter(1, places, largest * scale)
        return layer.logits(pruned).logsumexp(dim=1)

    return FeatureScore(score)


def kl_grad_norm() -> FeatureScore:
    """GradNorm: the L1 norm of the gradient of the last layer's weights.

    The gradient is that of KL(uniform || p(y|x)).

    Huang et al. (2021), arXiv:2110.00218, section 3; in closed form, section 5, it is the product
    of the L1 norms of the features and of p(y|x) - 1 / K. The score ``grad-norm`` is a different
    one, from the gradient of log p(x) with respect to x.
    """

    def score(layer: LastLayer, features: Tensor) -> Tensor:
        p = layer.logits(features).softmax(dim=1)
        distance = (p - 1 / len(layer.bias)).abs().sum(dim=1)
        return features.abs().sum(dim=1) * distance

    return FeatureScore(score)
