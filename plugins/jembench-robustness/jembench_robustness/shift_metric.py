"""Shifted test images: accuracy, calibration and their separation from the test images.

Legend: M test images, N shifted images of each of V variants.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, ClassVar

from jembench.catalog import registry
from jembench.catalog.options import Neutral
from jembench.catalog.registry import Resolved
from jembench.catalog.spec import Scalar, stable_hash
from jembench.interfaces import Evaluation, Measurement, Need, Planned, Quantity, Resampling
from jembench.interfaces.metrics import Adaptation
from jembench.metrics.base import Array, Arrays, describe_test_images
from jembench.metrics.classification import ECE, labelled_logits
from jembench.metrics.ood import ScoredClasses
from jembench.plugin import Estimate, Names, Range

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Shift(ScoredClasses):
    """Accuracy and ECE in % on shifted images, and AUROC of test images against them.

    ``set`` is an OOD set with labels, such as corrupted, cifar10-c and cifar10.1, or a dataset
    whose classes have the same names. Each variant of a set, a corruption at a severity, is
    measured on all images, and the values are means over the variants: over fifteen corruptions for
    corrupted:severity=3, over five severities for corrupted:by=fog. The mean corruption error of
    Hendrycks & Dietterich (2019), arXiv:1903.12261, is 100 % - accuracy here, since errors are not
    divided by AlexNet's. Intervals draw an image with all of its corruptions, and draw test images
    independently.

    ``adapt`` is a test-time adaptation: each corruption at each severity is classified by a copy of
    the trained model that is adapted to its images, without their labels. The trained model is not
    changed, and there is no AUROC.
    """

    set: Annotated[str, Names("ood_sets", "datasets")]
    bins: Annotated[int, Range(least=1, most=1000)] = 20
    adapt: Annotated[str, Names("adaptations"), Neutral()] = "none"
    name: ClassVar[str] = "shift"

    @cached_property
    def adaptation(self) -> Resolved | None:
        """The test-time adaptation; None: the trained model itself classifies."""
        if self.adapt == "none":
            return None
        return registry.resolve("adaptations", self.adapt)

    @property
    def requires(self) -> frozenset[Need]:
        """The needs of the score, unless the model is adapted."""
        if self.adaptation is None:
            return super().requires
        return frozenset({"logits", "labels", "gradients"})

    @property
    def reads(self) -> frozenset[Quantity]:
        """The trained model's logits and what the score reads; nothing if adapted."""
        return super().reads if self.adaptation is None else frozenset()

    @property
    def protocol_options(self) -> dict[str, Scalar]:
        """The score with all of its options, the bins and the adaptation."""
        adapted = {} if self.adaptation is None else {"adapt": str(self.adaptation)}
        return {**super().protocol_options, "bins": self.bins, **adapted}

    def check(self, planned: Planned) -> None:
        """Check that the shifted images are available."""
        planned.check_ood_set(self.set)

    def compute(self, evaluation: Evaluation) -> Measurement:
        """Classify and score the test images and the shifted ones.

        Raises:
            Unavailable: if shifted images are missing.
            NotApplicable: if shifted images have no labels, or the model has nothing to adapt.
            Diverged: if a logit or a score is not finite.
        """
        import numpy as np

        from jembench.data.ood_sets.resolve import resolve
        from jembench.data.pixels import content_hash

        scorer, fitted = (None, {}) if self.adaptation else self.fitted(evaluation)
        shifted = resolve(self.set).make()
        parts = getattr(shifted, "parts", ()) or [self.set]
        if scorer is None:
            inside = {}
        else:
            inside = {"inside": self.scores_of(scorer, evaluation, "test", self.data_noise)}
        contents, measured = [], []
        for name in parts:
            noise, about = self.noise_and_about(evaluation, name)
            if self.adaptation:
                adapted = adapted_logits(self.adaptation, evaluation, name, noise)
            else:
                adapted = None
            logits, labels = labelled_logits(evaluation, name, noise, adapted)
            if scorer is None:
                scores = {}
            else:
                scores = {"score": self.scores_of(scorer, evaluation, name, noise)}
            classified = ECE().scores(logits, labels)
            columns = {name: classified[name] for name in ("correct", "confidence")}
            measured.append({**columns, **scores})
            contents += [about["content"], content_hash(labels)]
        columns = {}
        for name in measured[0]:
            columns[name] = np.stack([arrays[name] for arrays in measured], axis=1)
        about = {
            "set": str(resolve(self.set)),
            "shifted": len(columns["correct"]),
            "content": stable_hash(contents),
        }
        tested = evaluation.data.part("test").images
        test = describe_test_images(len(tested), self.data_noise)
        protocol = {**test, **about, **fitted}
        return self.measurement(evaluation, {**inside, **columns}, parts=protocol)

    def estimates(self, arrays: Arrays) -> dict[str, Estimate]:
        """Return accuracy, ECE and AUROC, each a mean over variants.

        There is no AUROC with an adaptation.
        """
        correct = arrays["correct"]
        n = len(correct)
        right = 100 * correct.mean(axis=1)
        error = ECE(bins=self.bins).error(arrays)
        percent = (0.0, 100.0)
        accuracy = Resampling(lambda drawn: right[drawn].mean(axis=1), (n,), percent, n)
        ece = Resampling(lambda drawn: 100 * error(drawn), (n,), percent)
        estimates = {
            "accuracy": Estimate(accuracy, "%", "higher"),
            "ece": Estimate(ece, "%", "lower"),
        }
        if "score" in arrays:
            estimates["auroc"] = _mean_auroc(arrays["inside"], arrays["score"])
        return estimates


def _mean_auroc(inside: Array, shifted: Array) -> Estimate:
    """Return the AUROC of scores (M,) against scores (N, V), averaged over variants."""
    import numpy as np

    from jembench.stats import ranking

    resamplings = [ranking.auroc_resampling(inside, scores) for scores in shifted.T]

    def auroc(of_inside: Array, of_shifted: Array) -> Array:
        aurocs = [resampling.statistic(of_inside, of_shifted) for resampling in resamplings]
        return np.asarray(np.mean(aurocs, axis=0))

    sizes = len(inside), len(shifted)
    resampling = Resampling(auroc, sizes, (0.0, 1.0), min(sizes))
    return Estimate(resampling)


def adapted_logits(
    adaptation: Resolved, evaluation: Evaluation, images: str, noise: float
) -> Tensor:
    """Return the logits (N, K) of a model's copy adapted to images.

    Raises:
        NotApplicable: if the model has nothing that the adaptation could change.
    """
    from copy import deepcopy

    import torch

    from jembench.data.images import changed, on_device
    from jembench.data.pixels import content_hash, to_float
    from jembench.models import predictions
    from jembench.parts import seeds

    pixels = evaluation.data.images(images)
    data = evaluation.data.spec
    device = evaluation.device
    name = f"adapted-{adaptation.id}-{content_hash(pixels)}-noise={noise:g}"

    def compute() -> dict[str, Tensor]:
        if noise:
            x = predictions.noisy(pixels, noise, data.bounds)
        else:
            x = changed(pixels, lambda part, places: to_float(part, data.bounds), None, torch.float)
        x = on_device(x, device).to(device)
        drawn = torch.randint(2**62, (), generator=evaluation.services.generator(name))
        adapted: Adaptation = adaptation.make()
        generator = seeds.seeded(int(drawn), device)
        model = deepcopy(evaluation.model)
        logits = adapted.logits(model, x.clone(), data, generator=generator)
        return {"logits": logits.detach().cpu()}

    return evaluation.services.remembered(name, compute)["logits"]
