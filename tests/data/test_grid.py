"""Pictures, pixel by pixel."""

import numpy as np
import torch
from PIL import Image

from jembench.data import grid


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_a_row_holds_different_images_of_its_class_alone():
    classes = torch.arange(60) % 3
    chosen = grid.by_class(classes, 3, 5, generator())
    assert chosen.shape == (3, 5)
    for number, row in enumerate(chosen):
        assert (classes[row] == number).all()
        assert len(row.unique()) == 5


def test_a_class_with_too_few_images_leaves_places_empty():
    chosen = grid.by_class(torch.tensor([0, 2, 0]), 3, 3, generator())
    assert sorted(chosen[0].tolist()) == [-1, 0, 2]
    assert chosen[0, 2] == -1
    assert chosen[1].tolist() == [-1, -1, -1]
    assert chosen[2].tolist() == [1, -1, -1]


def test_every_image_is_as_likely_as_its_neighbours():
    """The first images of a buffer are not preferred: 100 draws of 5 of 20 give each one 25 times, sd 4.3."""
    shared = generator()
    drawn = torch.cat([grid.by_class(torch.zeros(20, dtype=torch.int64), 1, 5, shared).flatten() for _ in range(100)])
    counts = drawn.bincount(minlength=20)
    assert counts.min() > 25 - 4 * 4.4
    assert counts.max() < 25 + 4 * 4.4


def test_without_classes_ten_rows_of_different_images_are_drawn():
    chosen = grid.at_random(300, 7, generator())
    assert chosen.shape == (10, 7)
    assert len(chosen.unique()) == 70
    assert 0 <= chosen.min() <= chosen.max() < 300
    assert torch.equal(chosen, grid.at_random(300, 7, generator()))
    assert not torch.equal(chosen, grid.at_random(300, 7, generator(1)))


def test_without_classes_too_few_images_are_all_shown_and_leave_places_empty():
    chosen = grid.at_random(13, 2, generator()).flatten()
    assert sorted(chosen[:13].tolist()) == list(range(13))
    assert chosen[13:].tolist() == [-1] * 7
    assert (grid.at_random(0, 2, generator()) == -1).all()


def picture(path):
    with Image.open(path) as image:
        return np.asarray(image)


def test_the_picture_of_small_images_pixel_by_pixel(tmp_path):
    images = torch.tensor([[[[0, 10], [20, 30]]], [[[200, 210], [220, 230]]]], dtype=torch.uint8)
    grid.write_png(tmp_path / "grid.png", images, torch.tensor([[1, -1], [-1, 0]]))
    sheet = picture(tmp_path / "grid.png")
    assert sheet.shape == (70, 70)  # two images of 2 x 16 pixels and three gaps of 2
    expected = np.full((70, 70), 128)
    expected[2:34, 2:34] = np.kron([[200, 210], [220, 230]], np.ones((16, 16)))
    expected[36:68, 36:68] = np.kron([[0, 10], [20, 30]], np.ones((16, 16)))
    assert (sheet == expected).all()


def test_the_picture_of_colour_images_that_are_not_square(tmp_path):
    images = torch.randint(0, 256, (1, 3, 32, 40), dtype=torch.uint8, generator=generator())
    grid.write_png(tmp_path / "grid.png", images, torch.tensor([[0, -1]]))
    sheet = picture(tmp_path / "grid.png")
    assert sheet.shape == (36, 86, 3)
    assert (sheet[2:34, 2:42] == images[0].permute(1, 2, 0).numpy()).all()
    assert (sheet[:, 44:] == 128).all()


def test_images_are_enlarged_by_a_whole_factor_to_at_least_the_smallest_side(tmp_path):
    grid.write_png(tmp_path / "grid.png", torch.zeros((1, 1, 28, 28), dtype=torch.uint8), torch.tensor([[0]]))
    assert picture(tmp_path / "grid.png").shape == (60, 60)
