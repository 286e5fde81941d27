import numpy as np
import torch

from jembench.metrics.pictures import pictures


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
