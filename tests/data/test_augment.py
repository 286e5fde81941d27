"""Augmentation against a loop over images that pads, crops and flips in so many words."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from jembench.data.augment import Augmentation
from jembench.errors import JembenchError


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_images(*shape: int) -> Tensor:
    return torch.randint(256, shape, generator=generator(9), dtype=torch.uint8)


def every_outcome(image: Tensor, pad: int, flip: bool) -> dict[bytes, tuple[int, int, bool]]:
    """All that may become of one image, by numpy's padding: its bytes -> (row, column, flipped)."""
    _, height, width = image.shape
    padded = np.pad(image.numpy(), ((0, 0), (pad, pad), (pad, pad)), mode="reflect")
    outcomes = {}
    for row in range(2 * pad + 1):
        for column in range(2 * pad + 1):
            crop = padded[:, row : row + height, column : column + width]
            outcomes[crop.tobytes()] = (row, column, False)
            if flip:
                outcomes[crop[:, :, ::-1].tobytes()] = (row, column, True)
    return outcomes


@given(
    height=st.integers(3, 7),
    width=st.integers(3, 7),
    channels=st.sampled_from([1, 3]),
    pad=st.integers(0, 2),
    flip=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_each_image_is_a_crop_of_its_own_padded_self(
    height: int, width: int, channels: int, pad: int, flip: bool, seed: int
) -> None:
    images = random_images(6, channels, height, width)
    augmented = Augmentation(pad=pad, flip=flip)(images, generator(seed))
    assert augmented.dtype == torch.uint8
    assert augmented.is_contiguous()
    for before, after in zip(images, augmented, strict=True):
        assert after.numpy().tobytes() in every_outcome(before, pad, flip)


def test_all_outcomes_are_equally_likely_and_images_independent() -> None:
    image = random_images(1, 1, 5, 5)
    n = 18 * 2000
    augmented = Augmentation(pad=1, flip=True)(image.expand(n, -1, -1, -1), generator())
    outcomes = every_outcome(image[0], 1, flip=True)
    drawn = [outcomes[one.numpy().tobytes()] for one in augmented]
    counts = np.array([drawn.count(outcome) for outcome in outcomes.values()])
    assert len(counts) == 18
    chi_squared = ((counts - 2000) ** 2 / 2000).sum()
    assert chi_squared < 40.8  # the 99.9 % point for 17 degrees of freedom
    same_as_the_next = np.mean([a == b for a, b in pairwise(drawn)])
    assert abs(same_as_the_next - 1 / 18) < 4 * np.sqrt((1 / 18) * (17 / 18) / n)


def test_what_becomes_of_an_image_does_not_depend_on_the_others() -> None:
    images, others = random_images(4, 3, 8, 8), torch.zeros(4, 3, 8, 8, dtype=torch.uint8)
    others[2] = images[2]
    both = Augmentation(pad=2, flip=True)
    assert torch.equal(both(images, generator())[2], both(others, generator())[2])


def test_nothing_asked_for_nothing_done_and_nothing_drawn() -> None:
    images, fresh = random_images(4, 3, 8, 8), generator()
    assert torch.equal(Augmentation()(images, fresh), images)
    assert torch.equal(fresh.get_state(), generator().get_state())


def test_the_generator_decides_and_the_global_one_is_left_alone() -> None:
    images, both = random_images(16, 1, 8, 8), Augmentation(pad=2, flip=True)
    before = torch.get_rng_state()
    assert torch.equal(both(images, generator(1)), both(images, generator(1)))
    assert not torch.equal(both(images, generator(1)), both(images, generator(2)))
    assert torch.equal(torch.get_rng_state(), before)


def test_padding_must_be_smaller_than_the_image() -> None:
    with pytest.raises(JembenchError, match=r"Images of 4x8 cannot be padded by 4.*by 3 or less"):
        Augmentation(pad=4)(random_images(1, 1, 4, 8), generator())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_images_and_generator_may_lie_on_different_devices() -> None:
    images, both = random_images(16, 3, 8, 8), Augmentation(pad=2, flip=True)
    on_gpu = both(images.cuda(), generator(1))
    assert on_gpu.is_cuda
    assert torch.equal(on_gpu.cpu(), both(images, generator(1)))
    assert both(images.cuda(), torch.Generator("cuda").manual_seed(1)).is_cuda
