import numpy as np
import torch
from PIL import Image

from jembench.data import grid


def test_rows_are_filled_one_after_the_other():
    assert grid.arranged(np.arange(12), 2).tolist() == [list(range(10)), [10, 11] + [-1] * 8]
    assert grid.arranged(np.arange(12), 1).tolist() == [list(range(10))]
    assert grid.arranged(np.arange(100)).shape == (10, 10)
    assert (grid.arranged(np.arange(0), 3, 2) == -1).all()


def test_the_first_of_each_class_come_in_the_order_given():
    found = grid.first_of_classes(np.array([4, 3, 2, 1, 0]), np.array([0, 2, 0, 0, 2]), 3, 2)
    assert found.tolist() == [[3, 2], [-1, -1], [4, 1]]


def picture(path):
    with Image.open(path) as image:
        return np.asarray(image)


def test_the_picture_of_small_images_pixel_by_pixel(tmp_path):
    images = torch.tensor([[[[0, 10], [20, 30]]], [[[200, 210], [220, 230]]]], dtype=torch.uint8)
    grid.write_png(tmp_path / "grid.png", images.numpy(), np.array([[1, -1], [-1, 0]]))
    sheet = picture(tmp_path / "grid.png")
    assert sheet.shape == (70, 70)  # two images of 2 x 16 pixels and three gaps of 2
    expected = np.full((70, 70), 128)
    expected[2:34, 2:34] = np.kron([[200, 210], [220, 230]], np.ones((16, 16)))
    expected[36:68, 36:68] = np.kron([[0, 10], [20, 30]], np.ones((16, 16)))
    assert (sheet == expected).all()


def test_the_picture_of_colour_images_that_are_not_square(tmp_path):
    images = torch.randint(
        0, 256, (1, 3, 32, 40), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    grid.write_png(tmp_path / "grid.png", images.numpy(), np.array([[0, -1]]))
    sheet = picture(tmp_path / "grid.png")
    assert sheet.shape == (36, 86, 3)
    assert (sheet[2:34, 2:42] == images[0].permute(1, 2, 0).numpy()).all()
    assert (sheet[:, 44:] == 128).all()


def test_a_title_in_two_lines_stands_above_the_images(tmp_path):
    for name, title in (("plain", ""), ("titled", "a model")):
        grid.write_png(
            tmp_path / name, np.zeros((1, 1, 34, 34), dtype=np.uint8), np.array([[0]]), title=title
        )
    plain, titled = picture(tmp_path / "plain"), picture(tmp_path / "titled")
    assert (titled[2 * grid.LINE + 2 :] == plain[2:]).all()
    for line in (0, 1):
        assert (titled[2 + line * grid.LINE :][: grid.LINE] > grid.GROUND).any()


def test_images_are_enlarged_by_a_whole_factor_to_at_least_the_smallest_side(tmp_path):
    grid.write_png(tmp_path / "grid.png", np.zeros((1, 1, 28, 28), dtype=np.uint8), np.array([[0]]))
    assert picture(tmp_path / "grid.png").shape == (60, 60)


def test_images_of_two_channels_are_shown_by_their_first():
    images = np.array([[[[10]], [[200]]]], dtype=np.uint8)
    assert (grid.sheet(images, np.array([[0]])) == 10).all()


def numbered(n):
    """Images that say which one they are."""
    return np.tile(np.arange(n, dtype=np.uint8)[:, None, None, None], (1, 1, 2, 2))


def test_every_image_is_kept_once_and_a_grid_finds_it():
    grids = {"a": np.array([[7, 3, -1]]), "b": np.array([[3], [9]])}
    found = grid.pictures(torch.from_numpy(numbered(12)), grids)
    assert found["shown"].tolist() == [3, 7, 9]
    assert found["images"][:, 0, 0, 0].tolist() == [3, 7, 9]
    assert found["images"].dtype == np.uint8
    assert found["a"].tolist() == [[1, 0, -1]]
    for name, chosen in grids.items():
        seen = np.where(found[name] < 0, -1, found["shown"][found[name]])
        assert np.array_equal(seen, chosen)
