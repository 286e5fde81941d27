import math

import pytest
import torch
from torch import Generator

from jembench.data import dequantisation as units


def test_cells_of_all_levels_fill_the_unit_cube():
    levels = (torch.arange(256.0) / 255 * 2 - 1).view(1, 1, 16, 16)
    v = units.to_unit(levels, (-1.0, 1.0))
    torch.testing.assert_close(v, ((torch.arange(256.0) + 0.5) / 256 - 0.5).view_as(v))
    torch.testing.assert_close(units.from_unit(v, (-1.0, 1.0)), levels)
    moved = units.dequantised(
        levels.expand(50, -1, -1, -1), (-1.0, 1.0), Generator().manual_seed(0)
    )
    assert ((moved - levels).abs() <= 1 / 255 + 1e-6).all()
    assert moved.std(dim=0).mean() == pytest.approx(2 / 255 / math.sqrt(12), rel=0.02)
