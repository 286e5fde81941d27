import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jembench.data.pixels import add_noise, noise_to_model, to_float, to_uint8
from jembench.errors import Diverged

LEVELS = torch.arange(256, dtype=torch.uint8)
BOUNDS = st.tuples(st.floats(-10, 10), st.floats(0.1, 10)).map(
    lambda pair: (pair[0], pair[0] + pair[1])
)


@given(BOUNDS)
def test_all_levels_survive_the_round_trip(bounds: tuple[float, float]) -> None:
    assert torch.equal(to_uint8(to_float(LEVELS, bounds), bounds), LEVELS)


@pytest.mark.parametrize("bounds", [(-1.0, 1.0), (0.0, 1.0), (-0.5, 0.5)])
def test_the_ends_are_reached_exactly_and_never_passed(bounds: tuple[float, float]) -> None:
    x = to_float(LEVELS, bounds)
    assert x.dtype == torch.float32
    assert (x[0].item(), x[255].item()) == bounds
    assert (x.diff() > 0).all()


def test_the_scale_is_linear() -> None:
    expected = LEVELS.double() / 127.5 - 1
    assert (to_float(LEVELS, (-1.0, 1.0)).double() - expected).abs().max() < 1e-7


@given(st.floats(-5, 5, width=32))
def test_any_value_goes_to_the_nearest_level(value: float) -> None:
    (level,) = to_uint8(torch.tensor([value]), (-1.0, 1.0)).tolist()
    clamped = min(max(value, -1.0), 1.0)
    assert abs((level / 127.5 - 1) - clamped) <= 1 / 255 + 1e-6


def test_the_input_is_left_as_it_was() -> None:
    x = torch.tensor([-3.0, 0.5, 3.0])
    to_uint8(x, (-1.0, 1.0))
    assert x.tolist() == [-3.0, 0.5, 3.0]


def test_infinity_is_clamped_and_nan_refused() -> None:
    assert to_uint8(torch.tensor([-torch.inf, torch.inf]), (-1.0, 1.0)).tolist() == [0, 255]
    with pytest.raises(Diverged, match="NaN"):
        to_uint8(torch.tensor([0.0, torch.nan]), (-1.0, 1.0))


def test_noise_is_quoted_on_minus_one_to_one() -> None:
    assert noise_to_model(0.03, (-1.0, 1.0)) == 0.03
    assert noise_to_model(0.03, (0.0, 1.0)) == 0.015


def test_noise_has_the_given_deviation_and_no_mean_and_draws_from_its_generator_alone() -> None:
    n, before = 200_000, torch.get_rng_state()
    noise = add_noise(torch.zeros(n, 1, 1, 1), 0.03, torch.Generator().manual_seed(0))
    assert abs(noise.mean()) < 4 * 0.03 / n**0.5
    assert abs(noise.std() - 0.03) < 4 * 0.03 / (2 * n) ** 0.5
    assert torch.equal(torch.get_rng_state(), before)


def test_without_noise_nothing_is_drawn() -> None:
    x, generator = torch.zeros(4, 1, 2, 2), torch.Generator().manual_seed(0)
    assert add_noise(x, 0.0, generator) is x
    assert torch.equal(generator.get_state(), torch.Generator().manual_seed(0).get_state())
