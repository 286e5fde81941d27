import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jembench.data.holdout import draw_labelled, holdout
from jembench.errors import JembenchError
from jembench.interfaces import Split


def numbered(labels: list[int] | torch.Tensor) -> Split:
    """Images that are told apart by their pixels: image i holds i."""
    n = len(labels)
    index = torch.arange(n)
    images = torch.stack([index // 256, index % 256], dim=1).byte().reshape(n, 1, 1, 2)
    return Split(images, torch.as_tensor(labels))


def numbers(split: Split) -> list[int]:
    return [int(high) * 256 + int(low) for high, low in split.images.flatten(1)]


def test_it_holds_out_what_the_reference_implementation_does() -> None:
    split = numbered(torch.arange(500) % 10)
    order = list(range(500))
    # numpy.random.seed(1234); numpy.random.shuffle(list)
    np.random.RandomState(1234).shuffle(order)
    train, validation = holdout(split, 50)
    assert validation is not None
    assert numbers(validation) == order[:50]
    assert numbers(train) == order[50:]


@given(
    labels=st.lists(st.integers(0, 3), min_size=2, max_size=60),
    fraction=st.floats(0.01, 0.99),
    seed=st.integers(0, 2**32 - 1),
    stratified=st.booleans(),
)
def test_the_two_parts_are_the_whole(
    labels: list[int], fraction: float, seed: int, stratified: bool
) -> None:
    split, size = numbered(labels), max(1, min(len(labels) - 1, round(fraction * len(labels))))
    train, validation = holdout(split, size, seed, stratified=stratified)
    assert validation is not None
    assert len(validation.images) == size
    assert sorted(numbers(train) + numbers(validation)) == list(range(len(labels)))
    for part in (train, validation):
        assert part.labels is not None
        assert part.labels.tolist() == [labels[i] for i in numbers(part)]
    if stratified:
        share = split.labels.bincount() * size / len(labels)
        assert (validation.labels.bincount(minlength=len(share)) - share).abs().max() < 1


def test_nothing_held_out() -> None:
    split = numbered([0, 1, 2])
    train, validation = holdout(split, 0)
    assert train is split
    assert validation is None


@pytest.mark.parametrize("size", [-1, 3, 4])
def test_training_images_must_be_left(size: int) -> None:
    with pytest.raises(
        JembenchError, match=r"Cannot hold -?\d of 3 training images.* from 0 to 2\."
    ):
        holdout(numbered([0, 1, 2]), size)


def test_unlabelled_images() -> None:
    unlabelled = Split(numbered([0, 1, 2]).images, None)
    assert holdout(unlabelled, 1).validation.labels is None
    with pytest.raises(JembenchError, match="needs labels"):
        holdout(unlabelled, 1, stratified=True)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@given(
    labels=st.lists(st.integers(0, 3), min_size=1, max_size=60),
    fraction=st.floats(0, 1),
    seed=st.integers(0, 99),
)
def test_a_labelled_subset_has_the_same_share_of_every_class(
    labels: list[int], fraction: float, seed: int
) -> None:
    all_labels, size = torch.tensor(labels), max(1, round(fraction * len(labels)))
    indices = draw_labelled(all_labels, size, seeded(seed))
    assert indices.tolist() == sorted(set(indices.tolist()))
    assert len(indices) == size
    share = all_labels.bincount(minlength=4) * size / len(labels)
    assert (all_labels[indices].bincount(minlength=4) - share).abs().max() < 1


def test_which_labels_are_used_is_drawn() -> None:
    labels = torch.arange(200) % 10
    assert torch.equal(draw_labelled(labels, 40, seeded(1)), draw_labelled(labels, 40, seeded(1)))
    assert not torch.equal(
        draw_labelled(labels, 40, seeded(1)), draw_labelled(labels, 40, seeded(2))
    )
    often = torch.zeros(200)
    for seed in range(300):
        often[draw_labelled(labels, 40, seeded(seed))] += 1
    # every image as often as any other
    assert (often - 60).abs().max() < 4.5 * (300 * 0.2 * 0.8) ** 0.5


def test_all_labels_or_too_many() -> None:
    labels = torch.tensor([0, 1, 2])
    assert draw_labelled(labels, 3, seeded(0)).tolist() == [0, 1, 2]
    for size in (-1, 4):
        with pytest.raises(
            JembenchError,
            match=rf"labels of {size} of 3 training images cannot be used.* from 0 to 3",
        ):
            draw_labelled(labels, size, seeded(0))
