import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from jembench.data.ood_sets import factories
from jembench.errors import NotApplicable, SpecError, Unavailable
from jembench.interfaces import DataSpec, Split

NAMES = [
    "halves",
    "interp",
    "flipped",
    "rotated",
    "inverted",
    "permuted",
    "phases",
    "uniform",
    "constant",
]
GREY = DataSpec(name="grey", shape=(1, 4, 4), num_classes=2)
COLOUR = DataSpec(name="colour", shape=(3, 6, 6), num_classes=2)
WIDE = DataSpec(name="wide", shape=(1, 2, 3), num_classes=2)


def split(spec, n, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return Split(torch.randint(256, (n, *spec.shape), dtype=torch.uint8, generator=generator), None)


def draw(name, test, spec, **options):
    return getattr(factories, name)(**options).draw(test, spec)


def rows(*values):
    return torch.tensor(values, dtype=torch.uint8).reshape(len(values), 1, 2, 3)


@pytest.mark.parametrize("spec", [GREY, COLOUR])
@pytest.mark.parametrize("name", NAMES)
def test_as_many_images_of_the_same_shape_and_the_same_ones_each_time(name, spec):
    test = split(spec, 7)
    before = test.images.clone()
    first, second = draw(name, test, spec), draw(name, test, spec)
    assert (first.shape, first.dtype) == ((7, *spec.shape), torch.uint8)
    assert torch.equal(first, second)
    assert torch.equal(test.images, before)
    assert not torch.equal(first, test.images)
    first.zero_()  # they are nobody else's
    assert torch.equal(test.images, before)


@given(n=st.integers(2, 40))
def test_interp_is_the_mean_of_each_image_and_another_one(n):
    """Each image has a pixel of its own, which shows in whatever it is mixed into."""
    images = torch.zeros(n, 1, 1, n, dtype=torch.uint8)
    images[torch.arange(n), 0, 0, torch.arange(n)] = 200
    mixed = factories.interp().draw(
        Split(images, None), DataSpec(name="own", shape=(1, 1, n), num_classes=2)
    )
    for i, image in enumerate(mixed):
        assert image.flatten()[i] == 100
        assert (image == 100).sum() == 2
        assert (image == 0).sum() == n - 2


def test_interp_rounds_a_half_up_and_does_not_overflow():
    test = Split(torch.tensor([255, 254], dtype=torch.uint8).reshape(2, 1, 1, 1), None)
    mixed = draw("interp", test, DataSpec(name="one", shape=(1, 1, 1), num_classes=2))
    assert mixed.flatten().tolist() == [255, 255]


def test_interp_of_one_image_is_refused():
    with pytest.raises(NotApplicable, match="two different test images, and grey has 1"):
        draw("interp", split(GREY, 1), GREY)


@given(
    labels=st.lists(st.integers(0, 3), min_size=2, max_size=40).filter(
        lambda labels: len(set(labels)) > 1
    )
)
def test_halves_join_each_image_with_one_of_another_class(labels):
    """Each pixel is the number of its image."""
    n = len(labels)
    images = torch.arange(n, dtype=torch.uint8).view(n, 1, 1, 1).repeat(1, 1, 5, 2)
    spec = DataSpec(name="own", shape=(1, 5, 2), num_classes=4)
    found = factories.halves().draw(Split(images, torch.tensor(labels)), spec)
    assert torch.equal(found[:, :, :2], images[:, :, :2])
    lower = found[:, 0, 2, 0].tolist()
    assert torch.equal(
        found[:, :, 2:], torch.tensor(lower, dtype=torch.uint8).view(n, 1, 1, 1).repeat(1, 1, 3, 2)
    )
    assert all(labels[other] != label for other, label in zip(lower, labels, strict=True))


def test_halves_of_one_class_are_refused():
    with pytest.raises(NotApplicable, match="halves takes test images of two classes"):
        draw("halves", split(GREY, 3)._replace(labels=torch.ones(3, dtype=torch.long)), GREY)


def test_openood_has_the_images_of_its_list_in_the_list_s_order(tmp_path):
    folder, data = (
        tmp_path / "images_classic" / "tin",
        DataSpec(name="cifar10", shape=(3, 4, 4), num_classes=10),
    )
    folder.mkdir(parents=True)
    pictures = np.random.default_rng(0).integers(256, size=(3, 8, 8, 3), dtype=np.uint8)
    for place, picture in enumerate(pictures):
        Image.fromarray(picture).save(folder / f"{place}.png")
    with pytest.raises(Unavailable, match=r"test_tin\.txt is missing. Get its lists"):
        factories.openood(name="tin", root=str(tmp_path)).draw(split(GREY, 1), data)
    listed = tmp_path / "benchmark_imglist" / "cifar10" / "test_tin.txt"
    listed.parent.mkdir(parents=True)
    listed.write_text("tin/2.png -1\n\ntin/0.png -1\n")
    found = factories.openood(name="tin", root=str(tmp_path)).draw(split(GREY, 1), data)[:]
    sized = [
        Image.fromarray(pictures[place]).resize((4, 4), Image.Resampling.BILINEAR)
        for place in (2, 0)
    ]
    assert np.array_equal(
        found.permute(0, 2, 3, 1).numpy(), np.stack([np.asarray(one) for one in sized])
    )


@pytest.mark.parametrize(
    ("name", "images"), [("ninco", "images_largescale"), ("textures", "images_classic")]
)
def test_openood_has_lists_for_imagenet_whatever_the_name_of_the_data(tmp_path, name, images):
    data = DataSpec(name="photos", shape=(3, 4, 5), num_classes=1000)
    ood_set = factories.openood(name=name, root=str(tmp_path))
    listed = tmp_path / "benchmark_imglist" / "imagenet" / f"test_{name}.txt"
    with pytest.raises(Unavailable, match=rf"imagenet/test_{name}\.txt is missing. Get its lists"):
        ood_set.draw(split(GREY, 1), data)
    listed.parent.mkdir(parents=True)
    listed.write_text("some/a.jpg -1\nsome/c.jpg 7\n")
    with pytest.raises(Unavailable, match=rf"image .*{images}/some/a\.jpg is missing. Get its"):
        ood_set.draw(split(GREY, 1), data)
    (tmp_path / images / "some").mkdir(parents=True)
    for place, file in enumerate(("a", "c")):
        Image.new("L", (6, 4), 100 * place).save(tmp_path / images / "some" / f"{file}.jpg")
    drawn = ood_set.draw(split(GREY, 1), data)[:]
    assert drawn.shape == (2, 3, 4, 5)
    assert drawn.flatten(1).float().mean(1).tolist() == [0, 100]


def test_flipped_rotated_and_inverted_by_hand():
    test = Split(rows([1, 2, 3, 4, 5, 6]), None)
    assert draw("flipped", test, WIDE).flatten().tolist() == [3, 2, 1, 6, 5, 4]
    assert draw("inverted", test, WIDE).flatten().tolist() == [254, 253, 252, 251, 250, 249]
    square = Split(torch.tensor([[1, 2], [3, 4]], dtype=torch.uint8).reshape(1, 1, 2, 2), None)
    turned = draw("rotated", square, DataSpec(name="square", shape=(1, 2, 2), num_classes=2))
    assert turned.flatten().tolist() == [2, 4, 1, 3]


def test_what_is_not_square_cannot_be_turned():
    with pytest.raises(
        NotApplicable, match="rotated needs square images; those of wide are 2x3 pixels"
    ):
        draw("rotated", split(WIDE, 2), WIDE)


def test_permuted_rearranges_all_images_and_channels_alike():
    places = torch.arange(36, dtype=torch.uint8).reshape(1, 1, 6, 6)
    test = Split(
        (places + torch.tensor([0, 40, 80], dtype=torch.uint8).view(1, 3, 1, 1)).repeat(4, 1, 1, 1),
        None,
    )
    found = draw("permuted", test, COLOUR).flatten(2).int()
    order = found[0, 0]
    assert sorted(order.tolist()) == list(range(36))
    assert order.tolist() != list(range(36))
    assert torch.equal(
        found, (order + torch.tensor([0, 40, 80]).view(1, 3, 1)).expand(4, 3, 36).int()
    )


def test_uniform_has_every_level_as_often():
    levels = draw("uniform", split(COLOUR, 2000), COLOUR).flatten().numpy()
    counts = np.bincount(levels, minlength=256)
    assert counts.min() > 0
    expected = len(levels) / 256
    statistic = ((counts - expected) ** 2 / expected).sum()
    assert statistic < 255 + 5 * np.sqrt(2 * 255)  # chi-squared with 255 degrees of freedom


def test_constant_has_one_level_an_image_and_all_levels_among_them():
    found = draw("constant", split(COLOUR, 3000), COLOUR)
    levels = found[:, 0, 0, 0]
    assert torch.equal(found, levels.view(-1, 1, 1, 1).expand_as(found))
    assert len(levels.unique()) == 256


@pytest.mark.parametrize(("value", "level"), [(-1, 0), (1, 255), (0, 128), (0.5, 191)])
def test_a_constant_of_the_model_s_units_is_the_nearest_level(value, level):
    assert (draw("constant", split(GREY, 3), GREY, value=value) == level).all()


def test_a_constant_that_no_pixel_can_have_is_refused():
    with pytest.raises(SpecError, match="value of constant is 2; pixels of grey lie between"):
        draw("constant", split(GREY, 3), GREY, value=2)


def test_phases_keep_the_power_spectrum_of_every_channel_and_the_mean_colour():
    """Levels far from 0 and 255 need no clamping; rounding moves a coefficient by a few levels."""
    test = Split(split(COLOUR, 5).images // 8 + 112, None)
    drawn = draw("phases", test, COLOUR)
    before, after = (torch.fft.fft2(images.double()).abs() for images in (test.images, drawn))
    assert (before - after).abs().max() < 0.5 * 36
    assert (before - after).abs().mean() < 2
    assert (drawn.double().mean((2, 3)) - test.images.double().mean((2, 3))).abs().max() < 0.5
    assert (drawn != test.images).double().mean() > 0.8


def test_phases_leave_colours_together():
    """Three equal channels stay equal."""
    grey = split(GREY, 4).images.repeat(1, 3, 1, 1)
    drawn = draw("phases", Split(grey, None), DataSpec(name="own", shape=(3, 4, 4), num_classes=2))
    assert torch.equal(drawn[:, :1].expand_as(drawn), drawn)
