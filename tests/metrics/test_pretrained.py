"""The weights are files that a test must not fetch: here they are random, with the right names, of
small networks.
"""

from __future__ import annotations

import pickle
import socket
import urllib.error
from pathlib import Path

import fidelity
import pytest
import torch

from jembench.errors import CheckpointError, NotApplicable, Unavailable
from jembench.interfaces import DataSpec
from jembench.metrics import pretrained
from jembench.metrics.generation import FID, IS
from jembench.metrics.pretrained import InceptionFeatures

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def extractor():
    """torch-fidelity's network, with the weights that its constructor draws."""

    reference = fidelity.inception_network()

    class Random(reference.FeatureExtractorInceptionV3):
        def load_state_dict(self, state_dict, *args, **kwargs):
            return None

    with pytest.MonkeyPatch.context() as patch, torch.random.fork_rng(devices=[]):
        patch.setattr(reference, "load_state_dict_from_url", lambda *args, **kwargs: {})
        torch.manual_seed(0)
        return Random("random", ["2048", "logits_unbiased"])


@pytest.fixture(scope="module")
def weights(extractor, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("inception") / "weights.pth"
    torch.save(extractor.state_dict(), path)
    return path


@pytest.fixture(autouse=True)
def hub(tmp_path, monkeypatch):
    """An empty torch hub."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    return tmp_path / "hub" / "checkpoints"


@pytest.fixture(autouse=True)
def any_weights(monkeypatch):
    monkeypatch.setattr(
        InceptionFeatures, "published", InceptionFeatures.published._replace(digest="")
    )


@pytest.fixture
def dataset(fake):
    return fake.Dataset(DataSpec(name="toy", shape=(1, 4, 4), num_classes=3), {})


def prepared(dataset, **options):
    network = InceptionFeatures(**options)
    network.prepare(dataset, Path("unused"), CPU)
    return network


def test_features_are_torch_fidelitys_and_grey_is_repeated_to_rgb(
    weights, extractor, dataset, fake, monkeypatch
):
    torch.manual_seed(1)
    state = torch.get_rng_state()
    network = prepared(dataset, weights=str(weights))
    assert torch.equal(torch.get_rng_state(), state)
    images = fake.images(2, 0)
    monkeypatch.setattr(pretrained, "_BATCH", 1)
    pool, logits = network.features(images)
    assert (pool.shape, logits.shape, pool.dtype) == ((2, 2048), (2, 1008), torch.float32)
    expected_pool, expected_logits = extractor(images.repeat(1, 3, 1, 1))
    torch.testing.assert_close(pool, expected_pool, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(logits, expected_logits, rtol=1e-4, atol=1e-5)


def test_weights_that_are_nowhere_are_a_paragraph_with_the_remedy(dataset, hub):
    with pytest.raises(Unavailable) as caught:
        prepared(dataset)
    message = str(caught.value)
    assert "\n" not in message
    assert str(hub / InceptionFeatures.published.cached.name) in message
    for remedy in (
        "inception:download=true",
        fidelity.inception_network().URL_INCEPTION_V3,
        "inception:weights=PATH",
        "features=cnn",
    ):
        assert remedy in message


def test_a_given_file_that_is_not_there_is_named(dataset, tmp_path):
    with pytest.raises(Unavailable, match=r"there is no file .*absent\.pth"):
        prepared(dataset, weights=str(tmp_path / "absent.pth"))


@pytest.mark.parametrize(
    "error",
    [
        urllib.error.URLError("Name or service not known"),
        TimeoutError("timed out"),
        RuntimeError("hash"),
    ],
)
def test_a_download_that_fails_says_why_and_what_else_to_do(error, dataset, monkeypatch):
    def fail(url, path, **options):
        assert (url, options["hash_prefix"]) == (
            fidelity.inception_network().URL_INCEPTION_V3,
            InceptionFeatures.published.digest,
        )
        assert socket.getdefaulttimeout() == 20
        raise error

    monkeypatch.setattr(torch.hub, "download_url_to_file", fail)
    before = socket.getdefaulttimeout()
    with pytest.raises(Unavailable, match=r"could not be fetched to .* --set fid.features=cnn"):
        prepared(dataset, download=True)
    assert socket.getdefaulttimeout() == before


def test_what_was_tried_or_is_refused_is_not_advised(fake, monkeypatch):
    def fail(url, path, **options):
        raise TimeoutError("timed out")

    monkeypatch.setattr(torch.hub, "download_url_to_file", fail)
    unlabelled = fake.Dataset(DataSpec(name="toy", shape=(1, 4, 4), num_classes=0), {})
    with pytest.raises(Unavailable) as caught:
        prepared(unlabelled, download=True)
    assert "inception:weights=PATH" in str(caught.value)
    assert "download=true" not in str(caught.value)
    assert "features=cnn" not in str(caught.value)


def test_a_download_lands_in_torch_hubs_cache(weights, dataset, hub, monkeypatch):
    monkeypatch.setattr(
        torch.hub,
        "download_url_to_file",
        lambda url, path, **options: Path(path).symlink_to(weights),
    )
    assert prepared(dataset, download=True).identity.startswith("inception-2015-12-05@")
    assert (hub / InceptionFeatures.published.cached.name).is_file()


class Touch:
    """Runs code when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_a_file_that_would_run_code_runs_none_even_if_its_digest_begins_alike(dataset, tmp_path):
    path, mark = tmp_path / "evil.pth", tmp_path / "ran"
    torch.save({"weights": Touch(mark)}, path)
    with pytest.raises(pickle.UnpicklingError):
        prepared(dataset, weights=str(path))
    assert not mark.exists()


def test_weights_of_another_digest_are_refused(dataset, weights, monkeypatch):
    monkeypatch.setattr(
        InceptionFeatures, "published", InceptionFeatures.published._replace(digest="6726825d")
    )
    with pytest.raises(
        CheckpointError, match=r"weights.pth does not hold Inception's weights: its SHA-256"
    ) as caught:
        prepared(dataset, weights=str(weights))
    assert "not with 6726825d. Let jembench fetch them (96 MB)" in str(caught.value)
    assert "--set fid.features=inception:weights=PATH" in str(caught.value)


def test_images_of_five_channels_are_refused(fake, weights):
    dataset = fake.Dataset(DataSpec(name="spectral", shape=(5, 32, 32), num_classes=3), {})
    with pytest.raises(Unavailable, match="those of spectral have 5 channels"):
        prepared(dataset, weights=str(weights))


def test_the_inception_score_of_a_network_without_classes_is_not_applicable(generation):
    generation.network.classifies = False
    for metric in (IS(), FID(selection="features", top=0.5)):
        with pytest.raises(NotApplicable, match="The feature network pixels predicts no classes"):
            metric.compute(generation)
