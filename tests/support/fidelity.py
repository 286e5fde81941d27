"""Values of torch-fidelity.

It is imported by the test that asks for one, since it imports torchvision, and that the compiler.
"""


def frechet_distance(first, second):
    """Return its FID of two sets of features."""
    from torch_fidelity import metric_fid

    pair = (first, second)
    statistics = [metric_fid.fid_features_to_statistics(features.double()) for features in pair]
    result = metric_fid.fid_statistics_to_metric(*statistics, verbose=False)
    return result["frechet_inception_distance"]


def inception_score(logits, splits, **options):
    """Return its inception score."""
    from torch_fidelity.metric_isc import isc_features_to_metric

    return isc_features_to_metric(logits, splits=splits, **options)["inception_score_mean"]


def inception_network():
    """Return the module of its Inception network."""
    from torch_fidelity import feature_extractor_inceptionv3

    return feature_extractor_inceptionv3
