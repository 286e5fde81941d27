from __future__ import annotations

import fidelity
import pytest
import torch

from jembench.catalog.spec import Spec
from jembench.data.pixels import content_hash
from jembench.errors import Diverged, Unavailable
from jembench.interfaces import DataSpec, Split
from jembench.metrics.generation import FID, IS, KID
from jembench.metrics.sample_protocol import canonical_order

METRICS = {
    "is": IS(resamples=20),
    "fid": FID(resamples=20),
    "kid": KID(subsets=5, subset_size=30, resamples=20),
}


def test_images_are_ordered_by_content():
    images = torch.tensor([[2, 0], [1, 9], [1, 200], [0, 255]], dtype=torch.uint8).reshape(
        4, 1, 1, 2
    )
    assert canonical_order(images).tolist() == [3, 1, 2, 0]


@pytest.mark.parametrize("metric", METRICS)
def test_only_inception_gives_the_plain_label(metric, generation, fake):
    assert list(METRICS[metric].compute(generation).values) == [f"{metric}-pixels"]
    generation.network = fake.Features(name="")
    assert list(METRICS[metric].compute(generation).values) == [metric]


@pytest.mark.parametrize(
    ("height", "spec"), [(8, "cnn"), (28, "cnn"), (32, "inception"), (64, "inception")]
)
def test_the_feature_network_goes_by_the_size_of_the_images(height, spec, generation):
    generation.spec = DataSpec(name="toy", shape=(1, height, height), num_classes=3)
    METRICS["fid"].compute(generation)
    assert generation.specs_asked == {spec}


@pytest.mark.parametrize(
    ("metric", "n", "message"),
    [
        (
            "is",
            9,
            "is needs at least 10 generated images, one in each split; there are 9. Generate more "
            "images",
        ),
        ("fid", 7, "fid needs at least 8 generated images, as many as pixels@0 has features"),
        ("kid", 1, "kid needs at least 2 generated images"),
    ],
)
def test_too_few_images_are_refused(metric, n, message, generation):
    generation.sampled = generation.sampled[:n]
    with pytest.raises(Unavailable, match=message):
        METRICS[metric].compute(generation)


class Model:
    """It is sure of images with a bright pixel among their first three, whatever the feature
    network sees.
    """

    def logits(self, x):
        return 9 * x.flatten(1)[:, :3]


def most_confident(logits, n):
    return logits.double().softmax(1).amax(1).argsort(descending=True)[:n]


@pytest.mark.parametrize("selection", ["model", "features"])
def test_the_scores_are_those_of_torch_fidelity_on_the_images_selected(selection, generation):
    generation.model = Model()
    features = generation.network.features(generation.sampled)
    logits = {"features": features.logits, "model": generation.read("logits", generation.sampled)}[
        selection
    ]
    kept = most_confident(logits, 20)
    kept = kept[torch.from_numpy(canonical_order(generation.sampled[kept]))]
    options = {"selection": selection, "top": 1 / 3, "resamples": 0}
    score = IS(splits=2, **options).compute(generation)
    expected = fidelity.inception_score(features.logits[kept].double(), 2)
    assert score.values["is-pixels"].value == pytest.approx(expected, rel=1e-12)
    assert score.values["is-pixels"].n == 20
    assert (
        f"images=20,implementation=torch-fidelity,per_class=false,pooling=one-buffer,selection={selection}"
        in (score.protocol)
    )
    assert score.protocol.endswith("splits=2,top=20/60")
    distance = FID(**options).compute(generation).values["fid-pixels"].value
    real = generation.network.features(generation.dataset.split("train").images).pool
    expected = fidelity.frechet_distance(features.pool[kept], real)
    assert distance == pytest.approx(float(expected), rel=1e-9)


def test_a_model_whose_logits_are_not_finite_selects_nothing(generation):
    class Broken(Model):
        def logits(self, x):
            return super().logits(x) / (torch.arange(len(x)) != 3)[:, None]

    generation.model = Broken()
    FID(resamples=0).compute(generation)
    with pytest.raises(Diverged, match="logits of 1 of 60 samples are not finite"):
        FID(selection="model", top=0.5).compute(generation)


def test_the_reference_may_be_another_dataset(generation, fake):
    other = fake.images(50, 7, low=100)
    generation.sets["uniform"] = other
    splits = {**generation.dataset.splits, "train": Split(other, None)}
    of_train = generation.but(dataset=fake.Dataset(generation.spec, splits))
    found = FID(resamples=0, reference="uniform").compute(generation)
    expected = FID(resamples=0).compute(of_train)
    assert found.values == expected.values
    parts = Spec(found.protocol).options
    assert (parts["reference"], parts["reference_images"]) == ("uniform", "50")
    assert parts["content"] == content_hash(other)[:10]
    assert "content" not in expected.protocol
