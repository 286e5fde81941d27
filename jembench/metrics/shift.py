"""Shifted test images: accuracy, calibration and their separation from the test images.

Legend: M test images, N shifted images of each of V variants.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from jembench.catalog.options import Names
from jembench.catalog.spec import Scalar, stable_hash
from jembench.catalog.validation import Range
from jembench.interfaces import Evaluation, Measurement, Planned, Resampling
from jembench.metrics.base import Array, Arrays, Estimate, describe_test_images
from jembench.metrics.classification import ECE, binned_error, labelled_logits
from jembench.metrics.scored import ScoredClasses


@dataclass(frozen=True, kw_only=True)
class Shift(ScoredClasses):
    """Accuracy and ECE in % on shifted images, and AUROC of a score of the test images against them.

    ``set`` is an OOD set with labels, or a dataset whose classes have the same names. Those of the plugin
    jembench-robustness are corrupted, cifar10-c and cifar10.1. Each corruption at each severity that a set stands for
    is measured on all images, and the values are means over them: of corrupted:severity=3 over fifteen corruptions, of
    corrupted:by=fog over five severities. The mean corruption error of Hendrycks & Dietterich (2019), arXiv:1903.12261,
    is 100 % - accuracy here, since no error is divided by that of AlexNet. Intervals draw an image with all of its
    corruptions, and the test images independently.
    """

    set: Annotated[str, Names("ood_sets", "datasets")]
    bins: Annotated[int, Range(least=1, most=1000)] = 20
    name: ClassVar[str] = "shift"

    @property
    def protocol_options(self) -> dict[str, Scalar]:
        """The score with all of its options, and the bins."""
        return {**super().protocol_options, "bins": self.bins}

    def check(self, planned: Planned) -> None:
        """Check that the shifted images are available."""
        planned.check_ood_set(self.set)

    def compute(self, evaluation: Evaluation) -> Measurement:
        """Classify and score the test images and the shifted ones.

        Raises:
            Unavailable: if shifted images are missing.
            NotApplicable: if they have no labels.
            Diverged: if a logit or a score is not finite.
        """
        import numpy as np

        from jembench.data.ood_sets.resolve import resolve
        from jembench.data.pixels import content_hash

        scorer, fitted = self.fitted(evaluation)
        parts = getattr(resolve(self.set).make(), "parts", ()) or [self.set]
        inside = self.scores_of(scorer, evaluation, "test", self.data_noise)
        contents, measured = [], []
        for name in parts:
            noise, about = self.noise_and_about(evaluation, name)
            logits, labels = labelled_logits(evaluation, name, noise)
            classified = ECE().scores(logits, labels)
            measured.append({**classified, "score": self.scores_of(scorer, evaluation, name, noise)})
            contents += [about["content"], content_hash(labels)]
        columns = {key: np.stack([one[key] for one in measured], axis=1) for key in ("correct", "confidence", "score")}
        about = {"set": str(resolve(self.set)), "shifted": len(columns["score"]), "content": stable_hash(contents)}
        parts = {**describe_test_images(len(inside), self.data_noise), **about, **fitted}
        return self.measurement(evaluation, {"inside": inside, **columns}, parts=parts)

    def estimates(self, arrays: Arrays) -> dict[str, Estimate]:
        """Return accuracy, ECE and AUROC, each a mean over variants."""
        import numpy as np

        from jembench.stats import ranking

        inside, correct, confidence = arrays["inside"], arrays["correct"], arrays["confidence"]
        n, right, error = len(correct), 100 * correct.mean(axis=1), binned_error(confidence, correct, self.bins)
        each = [ranking.auroc_resampling(inside, scores) for scores in arrays["score"].T]

        def auroc(of_inside: Array, of_shifted: Array) -> Array:
            return np.asarray(np.mean([one.statistic(of_inside, of_shifted) for one in each], axis=0))

        accuracy = Resampling(lambda drawn: right[drawn].mean(axis=1), (n,), (0.0, 100.0), n)
        sizes = len(inside), n
        return {
            "accuracy": Estimate(accuracy, "%", "higher"),
            "ece": Estimate(Resampling(lambda drawn: 100 * error(drawn), (n,), (0.0, 100.0)), "%", "lower"),
            "auroc": Estimate(Resampling(auroc, sizes, (0.0, 1.0), min(sizes))),
        }
