"""OOD sets, noise and features of images that are read in parts equal those of tensors."""

import pytest
import torch

from jembench.data.datasets import LazyDataset
from jembench.data.images import Images
from jembench.data.ood_sets import factories
from jembench.data.ood_sets.other_images import OtherDataset
from jembench.data.pixels import content_hash
from jembench.errors import NotApplicable
from jembench.interfaces import DataSpec, Split
from jembench.metrics.features import in_batches
from jembench.models.predictions import noisy

DATA = DataSpec(name="colour", shape=(3, 6, 6), num_classes=3)
PIXELS = torch.randint(
    256, (600, 3, 6, 6), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
)
WHOLE = Split(PIXELS, torch.arange(600) % 3)


@pytest.fixture(autouse=True)
def limit_of_images(monkeypatch):
    monkeypatch.setenv("JEMBENCH_IMAGES_GIB", "0")


def read_in_parts(pixels=PIXELS):
    return Images(pixels.__getitem__, torch.arange(len(pixels)), tuple(pixels.shape[1:]))


def are_equal(images, expected):
    """Return whether lazy images equal a tensor, in slices, at random rows, and by hash."""
    assert isinstance(images, Images)
    assert (images.shape, images.dtype) == (expected.shape, expected.dtype)
    assert content_hash(images) == content_hash(expected)
    rows = torch.randint(len(expected), (50,), generator=torch.Generator().manual_seed(2))
    assert torch.equal(images[100:333], expected[100:333])
    return torch.equal(images[rows], expected[rows])


@pytest.mark.parametrize(
    "name",
    [
        *("interp", "flipped", "rotated", "inverted", "permuted", "halves"),
        *("constant", "phases", "uniform"),
    ],
)
def test_changed_images_are_the_same_ones(name):
    ood_set = getattr(factories, name)()
    expected = ood_set.draw(WHOLE, DATA)
    assert are_equal(ood_set.draw(Split(read_in_parts(), WHOLE.labels), DATA), expected)


@pytest.mark.parametrize("shape", [(3, 6, 6), (1, 6, 6), (3, 9, 9), (3, 4, 6)])
@pytest.mark.parametrize("count", [400, 900])
def test_the_images_of_another_dataset_are_the_same_ones(shape, count):
    generator = torch.Generator().manual_seed(1)
    pixels = torch.randint(256, (count, *shape), dtype=torch.uint8, generator=generator)
    labels = torch.arange(count) % 3
    spec = DataSpec(name="theirs", shape=shape, num_classes=3)

    def drawn(images):
        dataset = LazyDataset(spec, lambda name: Split(images, labels))
        return OtherDataset(make=lambda: dataset, name="theirs").draw(WHOLE, DATA)

    assert are_equal(drawn(read_in_parts(pixels)).images, drawn(pixels).images)


@pytest.mark.parametrize("test", [WHOLE, Split(read_in_parts(), WHOLE.labels)])
@pytest.mark.parametrize("images", [PIXELS.flip(0), read_in_parts(PIXELS.flip(0))])
def test_the_dataset_itself_is_known(test, images):
    dataset = LazyDataset(DATA, lambda name: Split(images, WHOLE.labels))
    with pytest.raises(NotApplicable, match="is the in-distribution dataset itself"):
        OtherDataset(make=lambda: dataset, name="itself").draw(test, DATA)


def test_noise_is_the_same():
    expected = noisy(PIXELS, 0.1, DATA.bounds)
    assert are_equal(noisy(read_in_parts(), 0.1, DATA.bounds), expected)


def test_features_are_the_same():
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(108, 5))

    def evaluate(batch):
        assert len(batch) <= 250
        return net(batch.float()), batch.flatten(1).sum(1, keepdim=True).float()

    expected = in_batches(net, evaluate, PIXELS, 250)
    for actual, features in zip(
        in_batches(net, evaluate, read_in_parts(), 250), expected, strict=True
    ):
        assert torch.equal(actual, features)
