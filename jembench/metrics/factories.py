"""The feature networks that ``jembench`` brings. Each imports its module when it is called."""

from __future__ import annotations

from jembench.catalog.options import content_of, incidental
from jembench.interfaces import FeatureNetwork


def cnn_features() -> FeatureNetwork:
    """A small convolutional network trained on the dataset itself; its numbers are named after it."""
    from jembench.metrics.cnn_features import CnnFeatures

    return CnnFeatures()


@incidental("download")
@content_of("weights")
def inception_features(*, weights: str = "", download: bool = False) -> FeatureNetwork:
    """The Inception network of the published IS and FID; needs 96 MB of weights.

    ``weights`` is a file that holds them (torch hub's cache by default); ``download=true`` fetches them there.
    """
    from jembench.metrics.inception_features import InceptionFeatures

    return InceptionFeatures(weights=weights, download=download)
