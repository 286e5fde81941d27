"""The checks of shapes and types that tests add to the package: of the first calls, and then of one in ten."""

import jaxtyping
import pytest
import torch
import typechecking
from jaxtyping import Float
from torch import Tensor


@pytest.fixture
def halves():
    """Says that its answer is as long as its argument, and returns half of it."""

    @jaxtyping.jaxtyped(typechecker=typechecking.check)
    def halves(x: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        return x[: len(x) // 2]

    return halves


def test_a_wrong_shape_is_seen_at_the_first_call(halves):
    with pytest.raises(jaxtyping.TypeCheckError, match="return value"):
        halves(torch.zeros(4))


def test_of_many_calls_the_first_ten_are_checked_and_then_one_in_ten(halves):
    seen = []
    for number in range(1, 41):
        try:
            halves(torch.zeros(4))
        except jaxtyping.TypeCheckError:
            seen.append(number)
    assert seen == [*range(1, 11), 20, 30, 40]


def test_the_package_is_checked():
    from jembench.models.energies import marginal_energy

    with pytest.raises(jaxtyping.TypeCheckError, match="parameters"):
        marginal_energy(torch.zeros(3, dtype=torch.long))
