import pytest
import torch

from jembench.catalog import registry
from jembench.errors import JembenchError, SpecError, Unavailable
from jembench.interfaces import ChainState, DataSpec, Split
from jembench.sampling.outliers import MixtureStart

DATA = DataSpec(name="toy", shape=(3, 4, 5), num_classes=2, bounds=(-0.5, 2.0))
# four images, none of whose values are equal
LEVELS = torch.randperm(240)[: 4 * 60].view(4, 3, 4, 5).byte()
TRAIN = Split(LEVELS, torch.tensor([0, 1, 0, 1]))


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def make(text, train=TRAIN, data=DATA):
    start = registry.resolve("starts", text).make(data)
    start.inform(train)
    return start


def levels(x):
    return ((x + 0.5) / 2.5 * 255).round().byte()


def which(x):
    """The training image that has the values of each image, in whatever order."""
    values = levels(x).flatten(1).sort(1).values
    same = (values[:, None] == LEVELS.flatten(1).sort(1).values[None]).all(2)
    assert same.any(1).all()
    return same.int().argmax(1)


class Constant:
    """A start whose images all have one value."""

    def __init__(self, value):
        self.value = value

    def inform(self, train):
        self.seen = train

    def draw(self, n, y, generator):
        return torch.full((n, *DATA.shape), self.value)

    def renew(self, x, restart, y, generator):
        return torch.where(restart[:, None, None, None], self.draw(len(x), y, generator), x)


def test_images_are_drawn_with_replacement_each_as_likely():
    x = make("images").draw(4000, None, seeded())
    counts = torch.bincount(which(x), minlength=4)
    assert torch.equal(levels(x), LEVELS[which(x)])
    assert float((counts - 1000).abs().max()) < 5 * (4000 * 3 / 16) ** 0.5


def test_an_ood_set_is_that_of_the_training_images():
    x = make("images:set=inverted").draw(50, None, seeded())
    assert torch.equal(255 - levels(x), LEVELS[which(-x + 1.5)])


def test_another_dataset_gives_its_training_images(tmp_path):
    from jembench.data.digits import digits

    data = DataSpec(name="toy", shape=(1, 8, 8), num_classes=2)
    x = make("images:set=digits", Split(torch.zeros(300, 1, 8, 8).byte(), None), data).draw(
        40, None, seeded()
    )
    theirs = digits().split("train").images.flatten(1)
    seen = ((x + 1) / 2 * 255).round().byte().flatten(1)
    assert (seen[:, None] == theirs[None]).all(2).any(1).all()


def test_the_channels_of_a_permuted_pixel_stay_together_and_each_image_has_its_own_order():
    x = make("permuted").draw(200, None, seeded())
    chosen = which(x)
    pixels, own = levels(x).flatten(2), LEVELS[chosen].flatten(2)
    # values differ
    order = (pixels[:, :1, :, None] == own[:, :1, None]).int().argmax(3).expand_as(pixels)
    assert torch.equal(own.gather(2, order), pixels)
    assert len(torch.unique(order[:, 0], dim=0)) > 190
    assert float((order[:, 0].float().mean(0) - 9.5).abs().max()) < 5 * (399 / 12 / 200) ** 0.5


def test_shapes_are_two_colours_or_their_blends_half_of_them_grey():
    x = make("shapes").draw(1000, None, seeded())
    grey = (x == x[:, :1]).flatten(1).all(1)
    assert float(grey.float().mean()) == pytest.approx(0.5, abs=5 * 0.5 / 1000**0.5)
    centred = x[~grey].flatten(2) - x[~grey].flatten(2).mean(2, keepdim=True)
    singular = torch.linalg.svdvals(centred.double())  # all pixels lie on one line of colours
    assert float((singular[:, 1] / singular[:, 0].clamp_min(0.01)).max()) < 1e-4
    spread = (x.flatten(2).amax(2) - x.flatten(2).amin(2)).amax(1)
    assert float((spread < 0.05).float().mean()) > 0.05  # nearly constant images are among them
    assert -0.5 <= float(x.min()) < 0 < 1.5 < float(x.max()) <= 2


def test_a_mixture_has_shares_in_proportion_to_its_weights_and_informs_its_parts():
    parts = [Constant(value) for value in (0.0, 1.0, 2.0)]
    mixture = MixtureStart(DATA, parts, [2, 1, 0.5])
    mixture.inform(TRAIN)
    assert all(part.seen is TRAIN for part in parts)
    counts = torch.bincount(mixture.draw(7000, None, seeded())[:, 0, 0, 0].long(), minlength=3)
    assert ((counts - torch.tensor([4000, 2000, 1000])).abs() < 5 * 7000**0.5 / 2).all()


def test_a_mixture_renews_restarted_chains_alone():
    x, restart = torch.full((400, *DATA.shape), 7.0), torch.arange(400) % 2 == 0
    renewed = MixtureStart(DATA, [Constant(0.0), Constant(1.0)], [1, 1]).renew(
        x, restart, None, seeded()
    )
    assert torch.equal(renewed[~restart], x[~restart])
    assert set(renewed[restart][:, 0, 0, 0].tolist()) == {0.0, 1.0}


def test_the_parts_of_a_mixture_are_in_its_identity(tmp_path):
    for split in ("train", "test"):
        (tmp_path / split / "cat").mkdir(parents=True)
        (tmp_path / split / "cat" / "0.png").write_bytes(b"1")
    text = f'ascent:start="mixture:starts=\\"uniform,images:set=imagefolder:root={tmp_path}\\""'
    found = []
    for content in (b"1", b"2"):
        (tmp_path / "train" / "cat" / "0.png").write_bytes(content)
        registry.content_of.cache_clear()
        found.append(registry.resolve("samplers", text).identity)
    kept = registry.resolve(
        "samplers", 'ascent:start="mixture:starts=\\"uniform,uniform\\""'
    ).identity
    assert kept["arguments"]["start"]["arguments"]["starts"][0]["name"] == "uniform"
    assert found[0] != found[1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'mixture:starts="uniform,shapes",weights="1"',
            "mixture has 2 starts and 1 weights; each start needs one weight.",
        ),
        (
            'mixture:starts="uniform,shapes",weights="1,0"',
            "a weight of mixture is 0.0; it must be greater than 0.",
        ),
        ('mixture:starts="uniform,nothing"', "There is no start of chains named 'nothing'."),
    ],
)
def test_a_mixture_that_makes_no_sense_is_refused(text, message):
    with pytest.raises(SpecError) as caught:
        make(text)
    assert message in str(caught.value)


def test_starts_of_images_need_the_training_images_and_the_files():
    with pytest.raises(JembenchError, match="has not received the training images"):
        registry.resolve("starts", "permuted").make(DATA).draw(1, None, seeded())
    with pytest.raises(Unavailable, match="OpenOOD's list"):
        make("images:set=openood:name=tin").draw(1, None, seeded())


def test_ascent_moves_each_image_by_its_length_and_stays_in_bounds():
    sampler = registry.resolve("samplers", "ascent:step_size=0.2,steps=0,start=images").make(DATA)
    sampler.inform(TRAIN)
    assert sampler.steps == 0
    inside = ChainState(torch.full((3, *DATA.shape), 0.75))
    slope = torch.randn(3, *DATA.shape, generator=seeded()) * torch.tensor([1e-3, 1.0, 0.0]).view(
        3, 1, 1, 1
    )
    moved = sampler.step(inside, lambda x, y: (x.flatten(1).sum(1), slope), seeded()).x - inside.x
    lengths = moved.flatten(1).norm(dim=1)
    torch.testing.assert_close(lengths, torch.tensor([0.5, 0.5, 0.0]))  # .2 of the range of 2.5
    direction = -slope[:2] / slope[:2].flatten(1).norm(dim=1).view(2, 1, 1, 1)
    torch.testing.assert_close(moved[:2], 0.5 * direction)
    far = sampler.step(
        ChainState(torch.full((1, *DATA.shape), 1.99)), lambda x, y: (x, -slope[:1].abs()), seeded()
    )
    assert float(far.x.max()) == 2.0
