"""One trained model under evaluation: what it shares, and where its numbers come from."""

import math
import random

import numpy as np
import pytest
import torch

from jembench import seeds
from jembench.data.holdout import Holdout
from jembench.data.pixels import to_float, to_uint8
from jembench.errors import Diverged, NotApplicable, PluginError, SpecError
from jembench.interfaces import DataSpec, Samples, Source, Split
from jembench.models import predictions
from jembench.models.capabilities import readable
from jembench.models.energies import LogitModel
from jembench.running import evaluation
from jembench.running.caches import FeatureBank, TensorCache
from jembench.running.evaluation import TrainedFit
from jembench.sampling.factories import pcd, sgld
from jembench.store.store import Store

DATA = DataSpec(name="three", shape=(1, 1, 3), num_classes=3)
IMAGES = torch.tensor(
    [[0, 0, 255], [255, 0, 0], [51, 102, 204], [0, 0, 0]], dtype=torch.uint8
).reshape(4, 1, 1, 3)
TEST = Split(IMAGES, torch.tensor([2, 0, 2, 1]))
TRAIN = Split(255 - IMAGES.repeat(2, 1, 1, 1), torch.arange(8) % 3)
CPU = torch.device("cpu")


class Pixels(LogitModel):
    """The logits are the pixels themselves: E(x) = -logsumexp x."""

    def __init__(self, chains="marginal"):
        super().__init__(torch.nn.Flatten())
        self.chains = chains

    def training_loss(self, batch, negatives):
        raise NotImplementedError


class Painter(Pixels):
    def __init__(self):
        super().__init__("none")

    def sample(self, n, y=None, *, generator):
        if y is not None:
            raise SpecError("paints without a model")
        return 3 * torch.randn((n, *DATA.shape), generator=generator)


class Flow(torch.nn.Module):
    """A density and nothing else."""

    def log_prob(self, x, y=None):
        return -x.square().flatten(1).sum(1)


class Dataset:
    spec = DATA

    def split(self, name):
        return {"train": TRAIN, "test": TEST}[name]


@pytest.fixture
def make(tmp_path):
    """Make an evaluation."""

    def make(model=None, sampler=None, *, seed=0, used=None, **more):
        return TrainedFit(
            model=(Pixels() if model is None else model).eval(),
            sampler=sampler,
            dataset=(dataset := Dataset()),
            device=CPU,
            seed=seed,
            bank=FeatureBank(dataset, Store(tmp_path), CPU),
            **more,
        ).evaluation(used)

    return make


def used(sampler, *, conditional=False):
    """The sampler with four chains behind it."""
    generator = torch.Generator().manual_seed(5)
    y = torch.tensor([0, 1, 2, 2]) if conditional else None
    state = sampler.init(4, y, generator=generator)
    sampler.finish(state)
    return sampler


def test_logits_and_energies_of_the_test_images(make):
    evaluation = make()
    expected = IMAGES.flatten(1).double() / 255 * 2 - 1
    assert (
        evaluation.predictions.read("logits").dtype
        == evaluation.predictions.read("energy").dtype
        == torch.float32
    )
    assert torch.allclose(evaluation.predictions.read("logits").double(), expected, atol=1e-6)
    assert torch.allclose(
        evaluation.predictions.read("energy").double(), -expected.logsumexp(1), atol=1e-6
    )
    by_hand = -math.log(2 * math.exp(-1) + math.exp(1))
    assert evaluation.predictions.read("energy")[0].item() == pytest.approx(by_hand, abs=1e-6)


def test_noise_on_images_is_kept_apart_and_depends_on_no_batch(make, tmp_path, monkeypatch):
    shown = predictions.noisy(IMAGES, 0.03, DATA.bounds).flatten(1)
    evaluation = make(cache=TensorCache(tmp_path / "readings"))
    assert torch.equal(evaluation.predictions.read("logits", "test", 0.03), shown)
    assert not torch.allclose(evaluation.predictions.read("logits"), shown)
    monkeypatch.setattr(predictions, "CPU_BATCH", 1)
    assert torch.equal(make().predictions.read("energy", "test", 0.03), -shown.logsumexp(1))
    monkeypatch.setattr(predictions, "read", None)  # what is remembered is not asked for again
    again = make(cache=TensorCache(tmp_path / "readings"))
    assert torch.equal(again.predictions.read("logits", "test", 0.03), shown)
    assert torch.equal(again.predictions.read("logits"), evaluation.predictions.read("logits"))


def test_the_energy_of_a_density_is_minus_its_logarithm(make):
    expected = (IMAGES.flatten(1).double() / 255 * 2 - 1).square().sum(1)
    assert torch.allclose(make(Flow()).predictions.read("energy").double(), expected, atol=1e-5)
    assert torch.equal(
        make(Flow()).predictions.read("energy", IMAGES[1:]),
        make(Flow()).predictions.read("energy")[1:],
    )


class WithoutGradient(Pixels):
    """Computes its logits where no gradient can pass."""

    def logits(self, x):
        with torch.no_grad():
            return super().logits(x)


class WithoutEnergy(Pixels):
    def energy(self, x, y=None):
        raise torch.OutOfMemoryError("no memory for energies")


ALL = frozenset({"logits", "energy", "grad-norm"})


def test_a_quantity_that_fails_fails_no_other(make):
    reads = make(WithoutGradient(), wanted=ALL).predictions
    assert torch.equal(reads.read("logits"), make().predictions.read("logits"))
    assert torch.equal(reads.read("energy"), make().predictions.read("energy"))
    with pytest.raises(PluginError, match="have no gradient with respect to the images"):
        reads.read("grad-norm")
    reads = make(WithoutEnergy(), wanted=ALL).predictions
    assert torch.equal(reads.read("logits"), make().predictions.read("logits"))
    for quantity in ("energy", "grad-norm"):
        with pytest.raises(torch.OutOfMemoryError):
            reads.read(quantity)


class Overflowing(Pixels):
    """Has no finite logits for images with a white last pixel, and no finite energies for any."""

    def logits(self, x):
        return super().logits(x).where(x.flatten(1)[:, 2:] < 1, torch.nan)

    def energy(self, x, y=None):
        return torch.full((len(x),), torch.inf)


def test_an_image_without_a_finite_value_fails_the_quantity_and_is_counted(make):
    reads = make(Overflowing(), wanted=frozenset({"logits", "energy"})).predictions
    for _ in range(2):  # also from the cache
        with pytest.raises(Diverged, match="The logits of 1 of 4 test images are not finite"):
            reads.read("logits")
    with pytest.raises(Diverged, match="The energies of 3 of 3 images are not finite"):
        reads.read("energy", IMAGES[1:])
    assert torch.isfinite(reads.read("logits", IMAGES[1:])).all()


@pytest.mark.parametrize(
    "images",
    [
        torch.zeros(1000, 1, 3, 1),
        torch.zeros(999, 1, 1, 3),
        torch.zeros(1000, 1, 1, 3).byte(),
        [0.0],
    ],
)
def test_samples_of_another_form_are_refused(make, images):
    painter = Painter()
    painter.sample = lambda n, y=None, *, generator: images
    with pytest.raises(
        PluginError, match=r"Painter.sample returns .*; return images of real floating-point"
    ):
        make(painter).samples()


class Noisy(Pixels):
    """Draws from every global generator in evaluation."""

    def logits(self, x):
        by_numpy = torch.from_numpy(np.random.rand(len(x), 1))  # noqa: NPY002
        drawn = torch.rand(len(x), 3) + by_numpy + random.random()
        return super().logits(x) + drawn.float()


def test_random_outputs_are_those_of_the_seed_and_the_images(make):
    def read(seed):
        reads = make(Noisy(), seed=seed).predictions
        torch.rand(seed + 1)  # what was drawn before does not count
        return reads.read("logits", IMAGES[1:]), reads.read("logits")

    first, second, other = read(0), read(0), read(1)
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])
    assert not torch.equal(first[0], other[0])
    assert not torch.equal(first[0], first[1][1:])


def test_what_a_metric_remembers_and_samples_are_drawn_by_the_seed(make):
    def drawn(seed):
        services = make(seed=seed).services
        return services.remembered("mine", lambda: {"a": torch.rand(3)})["a"]

    class Careless(Painter):
        def sample(self, n, y=None, *, generator):
            return torch.rand(n, *DATA.shape)

    state = torch.get_rng_state()
    assert torch.equal(drawn(0), drawn(0))
    assert not torch.equal(drawn(0), drawn(1))
    samples = [make(Careless(), seed=seed).samples().images for seed in (0, 0, 1)]
    assert torch.equal(samples[0], samples[1])
    assert not torch.equal(samples[0], samples[2])
    assert torch.equal(torch.get_rng_state(), state)


def test_what_several_metrics_need_is_computed_once(make):
    first = make(sampler=used(pcd(DATA, buffer=6)))
    second = first.predictions.evaluation()
    for quantity in ("logits", "energy"):
        assert first.predictions.read(quantity) is second.predictions.read(quantity)
    assert first.samples() is second.samples()


def test_a_limit_is_a_draw_of_test_images_that_all_models_share(make):
    assert torch.equal(make().data.part("test").images, IMAGES)
    for limit in (1, 3):
        images, labels = make(limit=limit).data.part("test")
        other, _ = make(Painter(), limit=limit, seed=7).data.part("test")
        assert torch.equal(images, other)
        places = [next(i for i in range(4) if torch.equal(image, IMAGES[i])) for image in images]
        assert len(set(places)) == limit
        assert torch.equal(labels, TEST.labels[places])
        assert len(make(limit=limit).predictions.read("logits")) == limit
    assert len(make(limit=99).data.part("test").images) == 4


class Watched(Pixels):
    """Counts the images that it is shown, and remembers where gradients were asked for."""

    def __init__(self):
        super().__init__()
        self.shown, self.with_gradient = 0, []

    def logits(self, x):
        self.shown += len(x)
        self.with_gradient.append(x.requires_grad)
        return super().logits(x)


def test_parts_and_outliers_by_name(make):
    evaluation = make(
        held=Holdout(
            Split(TRAIN.images[2:], TRAIN.labels[2:]), Split(TRAIN.images[:2], TRAIN.labels[:2])
        )
    )
    assert torch.equal(evaluation.data.images("test"), IMAGES)
    assert torch.equal(evaluation.data.images("train"), TRAIN.images[2:])
    assert torch.equal(evaluation.data.images("validation"), TRAIN.images[:2])
    assert torch.equal(evaluation.data.part("validation").labels, TRAIN.labels[:2])
    assert torch.equal(evaluation.data.images("inverted"), 255 - IMAGES)
    assert evaluation.data.images("inverted") is evaluation.data.images("inverted")


def test_nothing_stands_in_for_validation_images_that_are_not_there(make):
    tenth = len(TRAIN.images) // 10 or 1
    with pytest.raises(
        NotApplicable, match=f"without validation images, .*: --set data.validation={tenth}, or"
    ):
        make().predictions.read("logits", "validation")
    assert torch.equal(make().data.images("train"), TRAIN.images)


def test_an_image_is_shown_once_whatever_is_asked_of_it(make):
    evaluation = make(Watched(), wanted=frozenset({"logits", "energy", "grad-norm"}))
    for name in ("test", "inverted"):
        for quantity in ("energy", "logits", "grad-norm", "energy"):
            evaluation.predictions.read(quantity, name)
    assert evaluation.model.shown == 8
    assert evaluation.model.with_gradient == [True, True]


def test_gradients_are_computed_only_where_they_are_wanted(make):
    evaluation = make(Watched(), held=Holdout(TRAIN, TRAIN), wanted=frozenset({"grad-norm"}))
    evaluation.predictions.read("logits", "validation")
    evaluation.predictions.read("energy", TEST.images[:2])
    assert evaluation.model.with_gradient == [False, False]


def test_what_a_model_cannot_say_is_not_asked_along():
    assert readable(Flow(), {"logits", "energy"}) == {"energy"}
    assert readable(Watched(), {"logits", "energy", "grad-norm"}) == {
        "logits",
        "energy",
        "grad-norm",
    }


def test_a_later_run_asks_the_model_nothing_again(make, tmp_path):
    def run(weights="1"):
        evaluation = make(Watched(), sgld(DATA, steps=3), cache=TensorCache(tmp_path / weights))
        values = [
            evaluation.predictions.read("logits"),
            evaluation.predictions.refined("test", 2),
            evaluation.samples().images,
        ]
        return evaluation.model.shown, values

    (shown, first), (again, second), (other, _) = run(), run(), run("2")
    assert (again, other) == (0, shown)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_refining_follows_the_model_s_own_chain_from_the_image_itself(make):
    """Without noise a chain of E(x) = -logsumexp x climbs: x' = x + step softmax(x)."""
    evaluation = make(sampler=sgld(DATA, step_size=0.1, noise=0.0))
    x = to_float(IMAGES, DATA.bounds).flatten(1)
    for _ in range(3):
        x = x + 0.1 * x.softmax(1)
    assert torch.allclose(evaluation.predictions.refined("test", 3), -x.logsumexp(1), atol=1e-5)
    assert torch.equal(evaluation.data.images("test"), IMAGES)
    with pytest.raises(NotApplicable, match="without chains"):
        make(Pixels("none")).predictions.refined("test", 3)


def test_new_chains_by_their_source(make):
    evaluation = make(sampler=sgld(DATA, steps=7))
    few = evaluation.samples(Source(chains="fresh", steps=2, images=5))
    assert (len(few.images), few.labels, few.source) == (5, None, "chains:steps=2")
    of_classes = evaluation.samples(Source(chains="fresh", steps=2, images=5, conditional=True))
    assert (of_classes.labels.tolist(), of_classes.source) == (
        [0, 1, 2, 0, 1],
        "chains:conditional=true,steps=2",
    )
    assert torch.equal(
        few.images, evaluation.samples(Source(chains="fresh", steps=2, images=5)).images
    )
    with pytest.raises(NotApplicable, match="draws its images directly"):
        make(Painter()).samples(Source(chains="fresh"))


def test_buffers_of_the_last_epochs_are_pooled_or_averaged(make):
    buffers = [
        Samples(torch.full((2, *DATA.shape), level, dtype=torch.uint8), None, "buffer")
        for level in range(5)
    ]
    evaluation = make(sampler=used(pcd(DATA, buffer=6)), buffers=lambda: buffers)
    assert len(evaluation.samples(Source(pooling="five")).images) == 10
    assert torch.equal(evaluation.samples(Source(pooling="mean")).images, buffers[2].images)


def test_kept_chains_are_the_samples(make):
    sampler = used(pcd(DATA, buffer=6))
    slots = sampler.kept().slots
    sampler.images[slots[0]] = torch.tensor([-7.0, 0.0, 9.0]).reshape(1, 1, 3)
    images, labels, source, _ = make(sampler=sampler).samples()
    assert source == "buffer"
    assert labels is None
    assert (images.dtype, images.shape) == (torch.uint8, (6, 1, 1, 3))
    # what lies outside of the bounds is clamped
    assert images[0].flatten().tolist() == [0, 128, 255]


class PainterOfClasses(Pixels):
    """Each class in its shade."""

    def __init__(self):
        super().__init__("none")

    def sample(self, n, y=None, *, generator):
        return (y - 1.0)[:, None, None, None].expand(n, *DATA.shape)


def test_a_model_that_draws_classes_draws_each_as_often_and_says_which(make, monkeypatch):
    monkeypatch.setattr(evaluation, "FRESH_SAMPLES", 20)
    images, labels, source, _ = make(PainterOfClasses()).samples()
    assert source == "direct"
    assert labels.tolist() == [0, 1, 2] * 6 + [0, 1]
    assert images[:, 0, 0, 0].tolist() == [(0, 128, 255)[label] for label in labels]


def test_a_sampler_that_keeps_nothing_draws_chains_of_its_own_length(make):
    evaluation = make(sampler=sgld(DATA, steps=7))
    images, labels, source, _ = evaluation.samples()
    assert (len(images), labels, source) == (1000, None, "chains:steps=7")
    assert torch.equal(images, evaluation.samples(Source(chains="fresh", steps=7)).images)
    assert not torch.equal(images, evaluation.samples(Source(chains="fresh", steps=8)).images)


def test_fresh_chains_of_a_conditional_model_are_shared_out_among_the_classes(make):
    """At E(x, y) = -x[y], every chain brightens the pixel of its class alone."""
    evaluation = make(Pixels("conditional"), sgld(DATA, step_size=0.2, noise=0.0))
    start = evaluation.sampler.start(7, generator=seeds.generator(0, "evaluation/chains:steps=9")).x
    images, labels, source, _ = evaluation.samples(Source(chains="fresh", steps=9, images=7))
    assert (labels.tolist(), source) == ([0, 1, 2, 0, 1, 2, 0], "chains:steps=9")
    expected = start.flatten(1).clone()
    expected[torch.arange(7), labels] += 9 * 0.2
    assert torch.equal(images.flatten(1), to_uint8(expected, DATA.bounds))


def test_drawing_leaves_the_sampler_and_the_model_as_they_were(make):
    sampler = used(pcd(DATA, steps=3, buffer=6))
    evaluation = make(sampler=sampler)
    before = {name: value.clone() for name, value in sampler.state_dict().items()}
    samples = evaluation.samples()
    samples.images.zero_()
    evaluation.samples(Source(chains="fresh", steps=5, images=10))
    assert all(torch.equal(value, before[name]) for name, value in sampler.state_dict().items())
    assert not evaluation.model.training


@pytest.mark.parametrize("chains", ["marginal", "conditional"])
@pytest.mark.parametrize("batch", [1, 3, 4, 50])
def test_no_value_depends_on_the_batch_size(make, monkeypatch, batch, chains):
    def values():
        evaluation = make(Pixels(chains), sgld(DATA, steps=5))
        drawn = evaluation.samples(Source(chains="fresh", steps=5, images=7))
        return (
            evaluation.predictions.read("logits"),
            evaluation.predictions.read("energy"),
            evaluation.predictions.read("energy", TRAIN.images),
            drawn.images,
        )

    whole = values()
    monkeypatch.setattr(predictions, "CPU_BATCH", batch)
    assert all(torch.equal(a, b) for a, b in zip(whole, values(), strict=True))


def test_validation_images_may_take_the_place_of_test_images(make):
    held = Split(TRAIN.images[:3], TRAIN.labels[:3])
    whole = make(held=Holdout(TRAIN, held), split="validation")
    assert torch.equal(whole.data.part("test").images, held.images)
    assert whole.predictions.read("logits").shape == (3, 3)
    assert len(whole.data.images("uniform")) == 3  # as many outliers
    with pytest.raises(NotApplicable, match="nothing may be fitted on them"):
        whole.data.part("validation")
