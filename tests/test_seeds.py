import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jembench import seeds


def test_derived_seeds_are_frozen():
    """Another value here would change every number that was ever measured."""
    assert seeds.derive(0, "order/marginal") == 32435698011581569
    assert seeds.derive(7, "initialisation") == 2863736146990721210


@given(seed=st.integers(-(2**70), 2**70), purpose=st.text(max_size=20))
def test_a_derived_seed_is_one_that_torch_takes(seed, purpose):
    derived = seeds.derive(seed, purpose)
    assert 0 <= derived < 2**63
    torch.Generator().manual_seed(derived)


def test_neither_seed_nor_purpose_is_lost():
    derived = {
        seeds.derive(seed, purpose)
        for seed in range(20)
        for purpose in ("chains", "images", "1/chains", "")
    }
    assert len(derived) == 80


def test_generators_of_one_purpose_agree_and_others_do_not():
    chains, again, images = (
        seeds.generator(3, purpose) for purpose in ("chains", "chains", "images")
    )
    numbers = [torch.rand(4, generator=generator) for generator in (chains, again, images)]
    assert torch.equal(numbers[0], numbers[1])
    assert not torch.equal(numbers[0], numbers[2])


def test_drawing_puts_the_generator_back_after_an_error():
    before = torch.get_rng_state()
    with pytest.raises(ZeroDivisionError), seeds.drawing(0, "initialisation"):
        raise ZeroDivisionError(torch.rand(1))
    assert torch.equal(before, torch.get_rng_state())


def test_drawing_is_for_one_purpose_and_what_stands_around_goes_on():
    def inside(seed, purpose):
        with seeds.drawing(seed, purpose):
            return torch.rand(4)

    torch.rand(3)
    before = torch.get_rng_state()
    drawn = [inside(0, "a"), inside(1, "a"), inside(0, "b")]
    assert torch.equal(before, torch.get_rng_state())
    torch.rand(3)
    assert torch.equal(inside(0, "a"), drawn[0])
    assert not any(torch.equal(drawn[a], drawn[b]) for a, b in ((0, 1), (0, 2), (1, 2)))
    assert torch.equal(drawn[0], torch.rand(4, generator=seeds.generator(0, "a")))
