import pytest
import torch

from jembench.data.pixels import to_float
from jembench.errors import JembenchError, SpecError
from jembench.interfaces import DataSpec, Split
from jembench.sampling import chain
from jembench.sampling.pcd import PersistentChains
from jembench.sampling.sgld import Langevin
from jembench.sampling.starts import AT_ONCE, ClassGaussianStart, UniformStart

DATA = DataSpec(name="toy", shape=(1, 2, 2), num_classes=3)
DRAWS = 20_000


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def images_of(n, *, middle, spread=12, seed=0):
    """n images of correlated pixels around a level, far from black and white."""
    noise = torch.randn((n, 4), generator=seeded(seed)) @ torch.tensor(
        [[1.0, 0.5, 0.0, -0.5], [0, 1, 0.3, 0], [0, 0, 0.5, 0.5], [0, 0, 0, 0.8]]
    )
    return (middle + spread * noise).round().clamp(0, 255).byte().view(n, 1, 2, 2)


def split_of(*classes):
    """A training split of these images by class, its order mixed."""
    images, labels = (
        torch.cat(classes),
        torch.repeat_interleave(torch.tensor([len(part) for part in classes])),
    )
    order = torch.randperm(len(images), generator=seeded(9))
    return Split(images[order], labels[order])


def informed(train, data=DATA):
    start = ClassGaussianStart(data)
    start.inform(train)
    return start


@pytest.fixture
def dark_grey_bright():
    """Classes that no draw can confuse: 40 dark images, 4 grey ones, and a single bright one."""
    return split_of(
        images_of(40, middle=40, spread=3),
        images_of(4, middle=128, spread=3),
        images_of(1, middle=220, spread=3),
    )


def class_of(x):
    """The class of a draw from dark_grey_bright."""
    mean = x.mean((1, 2, 3))
    return (mean > -0.35).long() + (mean > 0.35).long()


def flat(x, y):
    """An energy without slopes: chains stay where they are."""
    return torch.zeros(len(x)), torch.zeros_like(x)


def test_uniform_pixels_fill_the_bounds():
    data = DataSpec(name="toy", shape=(1, 8, 8), num_classes=0, bounds=(-0.5, 2.0))
    x = UniformStart(data).draw(2000, None, seeded())
    assert -0.5 <= float(x.min()) < -0.49
    assert 1.99 < float(x.max()) <= 2.0
    assert float(x.mean()) == pytest.approx(0.75, abs=0.01)
    assert float(x.var()) == pytest.approx(2.5**2 / 12, abs=0.01)


@pytest.mark.parametrize("n", [2, 3, 7, 2 * AT_ONCE + 41])
@pytest.mark.parametrize("bounds", [(-1.0, 1.0), (0.0, 1.0)])
def test_mean_and_covariance_are_those_of_the_fitted_gaussian(n, bounds):
    data = DataSpec(name="toy", shape=(1, 2, 2), num_classes=3, bounds=bounds)
    train = split_of(
        images_of(5, middle=90), images_of(n, middle=140, seed=3), images_of(6, middle=120)
    )
    x = (
        informed(train, data)
        .draw(DRAWS, torch.ones(DRAWS, dtype=torch.int64), seeded())
        .flatten(1)
        .double()
    )
    fitted = to_float(images_of(n, middle=140, seed=3), bounds).flatten(1).double()
    jitter = 1e-4 * ((bounds[1] - bounds[0]) / 2) ** 2
    covariance = torch.cov(fitted.T, correction=0) + jitter * torch.eye(4)
    variance = covariance.diagonal()
    assert ((x.mean(0) - fitted.mean(0)).abs() < 5 * (variance / DRAWS).sqrt()).all()
    standard_error = ((variance[:, None] * variance[None] + covariance**2) / DRAWS).sqrt()
    assert ((torch.cov(x.T) - covariance).abs() < 5 * standard_error).all()
    assert float(x.min()) > bounds[0]  # so far from the bounds that nothing was clamped
    assert float(x.max()) < bounds[1]


def test_directions_without_images_have_the_small_variance_alone():
    """Two images span one direction; across it there is nothing but 1e-4."""
    train = split_of(
        torch.tensor([[100, 100, 100, 100], [150, 150, 150, 150]], dtype=torch.uint8).view(
            2, 1, 2, 2
        )
    )
    data = DataSpec(name="toy", shape=(1, 2, 2), num_classes=1)
    x = informed(train, data).draw(DRAWS, None, seeded()).flatten(1)
    across = x @ torch.tensor([1.0, -1.0, 0.0, 0.0]) / 2**0.5
    assert float(across.var()) == pytest.approx(1e-4, rel=5 * (2 / DRAWS) ** 0.5)
    assert float(x.var(0).min()) > 0.02


def test_a_class_of_one_image_has_the_small_variance_alone(dark_grey_bright):
    x = informed(dark_grey_bright).draw(DRAWS, torch.full((DRAWS,), 2), seeded())
    only = to_float(dark_grey_bright.images[dark_grey_bright.labels == 2], DATA.bounds)[0]
    assert float((x.mean(0) - only).abs().max()) < 5 * (1e-4 / DRAWS) ** 0.5
    torch.testing.assert_close(
        x.var(0), torch.full_like(only, 1e-4), rtol=5 * (2 / DRAWS) ** 0.5, atol=0
    )


def test_starts_are_clamped_to_the_bounds():
    contrast = torch.tensor([[0, 0, 255, 255], [255, 0, 255, 0]], dtype=torch.uint8).view(
        2, 1, 2, 2
    )
    data = DataSpec(name="toy", shape=(1, 2, 2), num_classes=1, bounds=(-0.5, 2.0))
    x = informed(split_of(contrast), data).draw(500, None, seeded())
    assert float(x.min()) == -0.5
    assert float(x.max()) == 2.0


def test_starts_have_the_wanted_classes_in_their_order(dark_grey_bright):
    y = torch.randint(3, (200,), generator=seeded(1))
    assert torch.equal(class_of(informed(dark_grey_bright).draw(200, y, seeded())), y)


def test_without_labels_every_class_is_as_likely_whatever_its_size(dark_grey_bright):
    counts = torch.bincount(
        class_of(informed(dark_grey_bright).draw(3000, None, seeded())), minlength=3
    )
    assert float((counts - 1000).abs().max()) < 5 * (3000 * 2 / 9) ** 0.5


def test_starts_are_independent_of_each_other(dark_grey_bright):
    x = (
        informed(dark_grey_bright)
        .draw(2000, torch.zeros(2000, dtype=torch.int64), seeded())
        .flatten(1)
    )
    pairs = torch.stack([x[::2, 0], x[1::2, 0]])
    assert abs(float(torch.corrcoef(pairs)[0, 1])) < 5 / 1000**0.5


@pytest.mark.parametrize("restarted", [[], [1], [0, 2, 3], [0, 1, 2, 3]])
@pytest.mark.parametrize("labels", [None, [2, 0, 1, 2]])
def test_only_restarted_chains_begin_anew_in_their_own_classes(dark_grey_bright, restarted, labels):
    x, restart = torch.full((4, 1, 2, 2), 7.0), torch.zeros(4, dtype=torch.bool)
    restart[restarted] = True
    y = None if labels is None else torch.tensor(labels)
    renewed = informed(dark_grey_bright).renew(x, restart, y, seeded())
    assert torch.equal(renewed[~restart], x[~restart])
    assert (renewed[restart].abs() <= 1).all()
    if y is not None:
        assert torch.equal(class_of(renewed)[restart], y[restart])
    assert torch.equal(x, torch.full_like(x, 7.0))


def test_conditional_chains_begin_in_the_slots_of_their_class(dark_grey_bright):
    sampler = PersistentChains(
        DATA,
        Langevin(steps=1, step_size=1, noise=0),
        ClassGaussianStart(DATA),
        buffer_size=30,
        reinit=0.5,
    )
    sampler.inform(dark_grey_bright)
    y = torch.tensor([2, 0, 1, 1, 0, 2])
    for seed in range(5):
        state = chain.draw(sampler, 6, flat, seeded(seed), y)
        assert torch.equal(class_of(state.x), y)
        assert torch.equal(class_of(sampler.kept().x), sampler.kept().y)


@pytest.mark.parametrize(("size", "counts"), [(30, [10, 10, 10]), (32, [11, 11, 10])])
def test_a_buffer_of_chains_without_labels_begins_with_as_many_of_each_class(
    dark_grey_bright, size, counts
):
    langevin = Langevin(steps=1, step_size=1, noise=0)
    sampler = PersistentChains(DATA, langevin, ClassGaussianStart(DATA), buffer_size=size, reinit=0)
    sampler.inform(dark_grey_bright)
    sampler.init(1, generator=seeded())
    assert class_of(sampler.kept().x).bincount().tolist() == counts
    assert sampler.kept().y is None


def test_a_sampler_that_is_loaded_and_informed_again_goes_on_as_before(dark_grey_bright):
    def make():
        sampler = PersistentChains(
            DATA,
            Langevin(steps=1, step_size=1, noise=0.1),
            ClassGaussianStart(DATA),
            buffer_size=20,
            reinit=0.5,
        )
        sampler.inform(dark_grey_bright)
        return sampler

    sampler, resumed = make(), make()
    chain.draw(sampler, 10, flat, seeded(1))
    resumed.load_state_dict({name: value.clone() for name, value in sampler.state_dict().items()})
    assert torch.equal(
        chain.draw(sampler, 10, flat, seeded(2)).x, chain.draw(resumed, 10, flat, seeded(2)).x
    )


def test_a_sampler_that_has_not_seen_the_training_images_says_so():
    with pytest.raises(JembenchError, match=r"has not received the training images\. Call"):
        ClassGaussianStart(DATA).draw(3, None, seeded())


@pytest.mark.parametrize(
    ("data", "train", "text"),
    [
        (
            DATA,
            split_of(images_of(3, middle=90), images_of(0, middle=90)),
            "no training image of toy is of class 1, 2",
        ),
        (DATA, Split(images_of(3, middle=90), None), "toy has no labels"),
        (
            DataSpec(name="toy", shape=(1, 2, 2), num_classes=0),
            split_of(images_of(3, middle=90)),
            "toy has no labels",
        ),
    ],
)
def test_classes_without_images_are_an_error_that_names_them(data, train, text):
    with pytest.raises(SpecError, match=text):
        informed(train, data)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_starts_lie_on_the_generators_device(dark_grey_bright):
    start = informed(dark_grey_bright)
    y = torch.tensor([2, 0, 1], device="cuda")
    x = start.draw(3, y, torch.Generator("cuda").manual_seed(0))
    assert torch.equal(class_of(x), y)
    assert start.draw(3, None, seeded()).device.type == "cpu"
