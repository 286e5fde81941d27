"""Images that are read in parts: what they give, what they refuse, and what is read."""

import numpy as np
import pytest
import torch

from jembench.data import images as module
from jembench.data.holdout import holdout
from jembench.data.images import Images, by_rows, copied, drawn, parts, taken
from jembench.data.pixels import content_hash
from jembench.errors import Unavailable
from jembench.interfaces import Split
from jembench.running.evaluation import limited

PIXELS = torch.randint(
    256, (40, 3, 4, 5), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
)
LABELS = torch.arange(40) % 4


@pytest.fixture(autouse=True)
def limit_of_images(monkeypatch):
    monkeypatch.setenv("JEMBENCH_IMAGES_GIB", "0")


@pytest.fixture
def read_rows():
    """The rows that were read, of images that are all read in parts."""
    return []


@pytest.fixture
def images(read_rows):
    def read(rows):
        read_rows.extend(rows.tolist())
        return PIXELS[rows]

    return by_rows(read, torch.arange(40), (3, 4, 5))


@pytest.mark.parametrize(
    "rows",
    [
        slice(None),
        slice(3, 9),
        slice(30, 99),
        slice(5, 5),
        slice(0, 20, 3),
        7,
        -1,
        torch.tensor([5, 1, 1, 39]),
        torch.tensor([[5, 1], [0, 2]]),
        torch.arange(40) % 3 == 0,
        torch.tensor([], dtype=torch.int64),
    ],
)
def test_an_index_gives_what_it_gives_of_a_tensor(images, rows):
    assert type(images) is Images
    assert torch.equal(images[rows], PIXELS[rows])
    assert type(images[rows]) is torch.Tensor


def test_shape_type_and_length_need_no_pixels(images, read_rows):
    assert (len(images), images.shape, images.dtype) == (40, PIXELS.shape, torch.uint8)
    assert (images.ndim, images.is_floating_point(), images.device) == (4, False, PIXELS.device)
    assert repr(images) == "Images((40, 3, 4, 5))"
    assert images.cpu() is images.clone() is images.detach() is images
    assert read_rows == []


def test_copies_need_no_dispatch(images, monkeypatch):
    # PyTorch imports torch.distributed.tensor for one
    monkeypatch.delattr(Images, "__torch_dispatch__")
    assert copied(images) is images.clone() is images.detach() is images


@pytest.mark.parametrize("written", [0, 1])
@pytest.mark.parametrize("has_lazy_clone", [True, False])  # which is private to PyTorch
@pytest.mark.parametrize("is_allocated", [True, False])  # by PyTorch
def test_a_copy_is_not_spoilt_by_who_writes_to_the_other(
    is_allocated, has_lazy_clone, written, monkeypatch
):
    if not has_lazy_clone:
        monkeypatch.delattr(torch, "_lazy_clone")
    both = [PIXELS.clone(), None]
    if not is_allocated:
        both[0] = torch.from_numpy(PIXELS.numpy().copy())
    both[1] = copied(both[0])
    both[written].numpy()[:] = 0
    assert torch.equal(both[1 - written], PIXELS)
    assert not both[written].any()


def test_a_copy_that_is_only_read_takes_no_memory():
    original = PIXELS.clone()
    copy = copied(original)
    assert content_hash(copy) == content_hash(original) == content_hash(PIXELS)
    assert torch.equal(copy[3:5].float(), original[torch.tensor([3, 4])].float())
    assert torch._C._is_cow_tensor(copy)


@pytest.mark.parametrize(
    "whole",
    [
        lambda images: 255 - images,
        lambda images: images + 1,
        lambda images: images.float(),
        lambda images: images.flatten(1),
        lambda images: images.flip(3),
        lambda images: images.numpy(),
        lambda images: np.asarray(images),
        lambda images: images[:, :, :2],
        lambda images: torch.cat([PIXELS, images]),
        lambda images: torch.equal(images, PIXELS),
        lambda images: list(images),
    ],
)
def test_what_needs_all_images_says_how_to_have_it(images, read_rows, whole):
    with pytest.raises(Unavailable, match=r"needs all 40 images .*--limit .*JEMBENCH_IMAGES_GIB"):
        whole(images)
    assert read_rows == []


def test_the_limit_says_which_images_lie_in_memory(monkeypatch):
    monkeypatch.setenv("JEMBENCH_IMAGES_GIB", "1")
    monkeypatch.setattr(module.limits, "GIB", PIXELS.nbytes)
    whole = by_rows(PIXELS.__getitem__, torch.arange(40), (3, 4, 5))
    assert type(whole) is torch.Tensor
    assert torch.equal(whole, PIXELS)
    monkeypatch.setattr(module.limits, "GIB", PIXELS.nbytes - 1)
    images = by_rows(PIXELS.__getitem__, torch.arange(40), (3, 4, 5))
    assert type(images) is Images
    assert type(taken(images, torch.arange(39))) is torch.Tensor  # which are few enough


def test_a_selection_reads_nothing_and_selects_what_it_does_of_a_tensor(images, read_rows):
    order = torch.randperm(40, generator=torch.Generator().manual_seed(1))
    nested = taken(taken(images, order[:30]), torch.arange(30) % 2 == 0)
    assert read_rows == []
    assert torch.equal(nested[:], PIXELS[order[:30]][::2])


def test_the_hash_of_the_content_is_that_of_the_tensor_and_read_once(images, read_rows):
    assert content_hash(images) == content_hash(PIXELS) == content_hash(images)
    assert read_rows == list(range(40))
    assert content_hash(taken(images, torch.arange(5))) == content_hash(PIXELS[:5])


def test_parts_are_all_images_in_order(images):
    assert [len(part) for part in parts(images, 16)] == [16, 16, 8]
    assert torch.equal(torch.cat(list(parts(images, 16))), PIXELS)


@pytest.mark.parametrize("count", [3, 16, 39, 40])
def test_drawn_images_are_those_of_one_generator_in_any_order(images, count):
    def draw(part, generator):
        drawn_parts.append(part.start)
        shape = (part.stop - part.start, 1, 2, 2)
        return torch.randint(256, shape, dtype=torch.uint8, generator=generator)

    def generator():
        return torch.Generator().manual_seed(2)

    drawn_parts = []
    some = taken(images, torch.arange(count))
    made = drawn(some, draw, generator(), (1, 2, 2), size=16)
    expected = draw(slice(0, count), generator())
    assert type(made) is Images
    assert len(made) == count
    drawn_parts.clear()
    for rows in ([count - 1, 0, count - 1], [0, count // 2], list(range(count))):
        assert torch.equal(made[torch.tensor(rows)], expected[rows])
    assert set(drawn_parts) <= {0, 16}  # a rest belongs to the last part
    assert torch.equal(drawn(PIXELS[:count], draw, generator(), (1, 2, 2), size=16), expected)


@pytest.mark.parametrize("stratified", [False, True])
def test_the_images_held_out_are_the_same_ones(images, read_rows, stratified):
    expected = holdout(Split(PIXELS, LABELS), 8, stratified=stratified)
    actual = holdout(Split(images, LABELS), 8, stratified=stratified)
    assert read_rows == []
    for part, whole in zip(actual, expected, strict=True):
        assert torch.equal(part.images[:], whole.images)
        assert torch.equal(part.labels, whole.labels)


def test_a_limit_reads_as_many_images(images, read_rows):
    expected = limited(Split(PIXELS, LABELS), 6)
    actual = limited(Split(images, LABELS), 6)
    assert torch.equal(actual.images[:], expected.images)
    assert len(read_rows) == 6
