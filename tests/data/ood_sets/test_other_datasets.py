import dataclasses

import numpy as np
import pytest
import torch
from PIL import Image

from jembench.data.digits import digits
from jembench.data.ood_sets.other_images import OtherDataset
from jembench.data.ood_sets.resolve import resolve
from jembench.errors import NotApplicable, Remark, SpecError, Unavailable
from jembench.interfaces import DataSpec, Split

HERE = DataSpec(name="here", shape=(3, 8, 8), num_classes=2)


class Dataset:
    def __init__(self, images, name="there"):
        self.spec = DataSpec(name=name, shape=tuple(images.shape[1:]), num_classes=0)
        self.images = images

    def split(self, name):
        assert name == "test"
        return Split(self.images, None)


def random(n, *shape):
    return torch.randint(
        256, (n, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(n)
    )


def draw(images, n, data=HERE, name="there"):
    test = Split(torch.full((n, *data.shape), 255, dtype=torch.uint8), None)
    return OtherDataset(make=lambda: Dataset(images, name), name="there").draw(test, data).images


def test_images_of_the_same_shape_are_taken_as_they_are():
    images = random(5, 3, 8, 8)
    assert torch.equal(draw(images, 5), images)
    assert torch.equal(draw(images, 9), images)  # all that there are


def test_of_many_as_many_are_drawn_as_there_are_test_images_none_twice():
    images = torch.arange(50, dtype=torch.uint8).view(50, 1, 1, 1).expand(50, 3, 8, 8)
    found = draw(images, 20)[:, 0, 0, 0].tolist()
    assert len(set(found)) == 20
    assert found != list(range(20))
    assert found == draw(images, 20)[:, 0, 0, 0].tolist()


def test_grey_becomes_colour_and_colour_grey():
    grey = random(3, 1, 8, 8)
    assert torch.equal(draw(grey, 3), grey.expand(3, 3, 8, 8))
    colour = random(3, 3, 8, 8)
    expected = (colour.double() * torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)).sum(
        1, keepdim=True
    )
    found = draw(colour, 3, DataSpec(name="here", shape=(1, 8, 8), num_classes=2))
    assert (found - expected).abs().max() <= 1


def test_images_of_another_size_are_cropped_to_a_square_and_resized():
    (image,) = images = random(1, 3, 12, 20)
    with pytest.warns(
        Remark, match="Images of there of 3x12x20 are resized to 3x8x8, those of here"
    ):
        found = draw(images, 1)[0].permute(1, 2, 0).numpy()
    square = Image.fromarray(image.permute(1, 2, 0).numpy()[:, 4:16])
    assert np.array_equal(found, np.asarray(square.resize((8, 8), Image.Resampling.BICUBIC)))


@pytest.mark.parametrize(("name", "shape", "text"), [("there", (4, 8, 8), "there has 4 channels")])
def test_what_cannot_be_an_outlier(name, shape, text):
    with pytest.raises(NotApplicable, match=text):
        draw(random(2, *shape), 2, name=name)


def test_images_tell_whether_it_is_the_same_dataset_and_names_do_not():
    images = random(5, 3, 8, 8)
    assert torch.equal(draw(images, 5, name=HERE.name), images)
    own = OtherDataset(make=lambda: Dataset(images, "another name"), name="there")
    with pytest.raises(NotApplicable, match="another name is the in-distribution dataset itself"):
        own.draw(Split(images[[3, 1]], None), HERE)


def test_images_of_classes_of_the_same_names_have_their_labels():
    data, test = digits(), digits().split("test")
    here = dataclasses.replace(data.spec, name="here", shape=(3, 8, 8))
    found = resolve("digits").make().draw(Split(random(20, 3, 8, 8), None), here)
    for image, label in zip(found.images[:, 0], found.labels, strict=True):
        assert label in test.labels[(test.images[:, 0] == image).flatten(1).all(dim=1)]
    assert resolve("digits").make().draw(Split(random(20, 3, 8, 8), None), HERE).labels is None


def test_a_name_is_a_set_of_outliers_or_else_a_dataset():
    test = Split(random(3, 3, 8, 8), None)
    assert torch.equal(resolve("inverted").make().draw(test, HERE), 255 - test.images)
    assert resolve("digits").make().draw(test, HERE).images.shape == (3, 3, 8, 8)
    assert str(resolve("constant:value=-1")) == "constant:value=-1.0"
    assert str(resolve("celeba:root=/anywhere")) == "celeba"


def test_the_dataset_itself_is_none_of_its_own_outliers():
    data = digits()
    with pytest.raises(NotApplicable, match="digits is the in-distribution dataset itself"):
        resolve("digits").make().draw(data.split("test"), data.spec)


def test_a_name_that_nothing_has_names_what_there_is():
    with pytest.raises(SpecError, match=r"no OOD set named 'interpol'\. Nearest: interp"):
        resolve("interpol")
    with pytest.raises(SpecError, match="no option of interp named 'levels'"):
        resolve("interp:levels=3")


def test_a_dataset_that_is_not_at_hand_says_so_when_it_is_drawn(tmp_path):
    outliers = resolve(f"svhn:root={tmp_path}").make()
    with pytest.raises(Unavailable, match="SVHN is not available"):
        outliers.draw(Split(random(3, 3, 8, 8), None), HERE)
