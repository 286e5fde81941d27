import pytest

from jembench.catalog import registry
from jembench.errors import SpecError
from jembench.interfaces import DataSpec
from jembench.sampling.sgld import Langevin
from jembench.sampling.starts import ClassGaussianStart, UniformStart

DATA = DataSpec(name="toy", shape=(1, 2, 2), num_classes=5, bounds=(-0.5, 2.0))


def make(text):
    return registry.resolve("samplers", text).make(DATA)


@pytest.mark.parametrize("name", ["sgld", "pcd"])
def test_nothing_is_clipped_or_bounded_and_chains_start_at_noise_unless_asked_for(name):
    plain, asked = make(name), make(f"{name}:clip=1,bounded=true,start=class-gaussian,noise=0")
    assert (plain.langevin.clip, plain.langevin.bounds) == (None, None)
    assert isinstance(plain.starts, UniformStart)
    assert (asked.langevin.clip, asked.langevin.bounds) == (1.0, DATA.bounds)
    assert isinstance(asked.starts, ClassGaussianStart)


def test_an_option_that_is_left_out_and_one_given_its_default_are_the_same():
    given = registry.resolve("samplers", "pcd:clip=none,bounded=false,start=uniform")
    assert given.identity == registry.resolve("samplers", "pcd").identity
    assert str(given) == "pcd"
    assert (
        str(registry.resolve("samplers", "pcd:clip=1,bounded=yes")) == "pcd:bounded=true,clip=1.0"
    )


def test_the_proximal_sampler_is_that_of_jem_plus_plus_by_default():
    sampler = make("proximal")
    assert sampler.langevin == Langevin(
        steps=10, step_size=1.0, noise=0.0, clip=1.0, bounds=DATA.bounds
    )
    assert (sampler.steps, sampler.capacity, sampler.reinit) == (10, 10_000, 0.05)
    assert isinstance(sampler.starts, ClassGaussianStart)
    assert isinstance(make("proximal:start=uniform").starts, UniformStart)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pcd:buffer=0", "buffer of pcd is 0; it must be at least 1 and at most 100,000,000."),
        (
            "pcd:start=gaussian",
            "There is no start of chains named 'gaussian'. Nearest: class-gaussian. Known: "
            "class-gaussian, images, mixture, pca, permuted, shapes, uniform. `jembench list "
            "starts` says what each one is.",
        ),
    ],
)
def test_an_option_that_makes_no_sense_is_named(text, message):
    with pytest.raises(SpecError) as caught:
        make(text)
    assert str(caught.value) == message
