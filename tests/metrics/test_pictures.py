import numpy as np
import torch

from jembench.metrics.pictures import first_of_classes, in_rows, pictures


def numbered(n):
    """Images that say which one they are."""
    return torch.arange(n, dtype=torch.uint8).view(n, 1, 1, 1).expand(n, 1, 2, 2)


def test_every_image_is_kept_once_and_a_grid_finds_it():
    grids = {"a": np.array([[7, 3, -1]]), "b": np.array([[3], [9]])}
    found = pictures(numbered(12), grids)
    assert found["shown"].tolist() == [3, 7, 9]
    assert found["images"][:, 0, 0, 0].tolist() == [3, 7, 9]
    assert found["images"].dtype == np.uint8
    assert found["a"].tolist() == [[1, 0, -1]]
    for name, chosen in grids.items():
        seen = np.where(found[name] < 0, -1, found["shown"][found[name]])
        assert np.array_equal(seen, chosen)


def test_rows_are_filled_one_after_the_other():
    assert in_rows(np.arange(12), 2).tolist() == [list(range(10)), [10, 11] + [-1] * 8]
    assert in_rows(np.arange(12), 1).tolist() == [list(range(10))]
    assert in_rows(np.arange(100)).shape == (10, 10)


def test_the_first_of_each_class_come_in_the_order_given():
    found = first_of_classes(np.array([4, 3, 2, 1, 0]), np.array([0, 2, 0, 0, 2]), 3)
    assert [row[row >= 0].tolist() for row in found] == [[3, 2, 0], [], [4, 1]]
