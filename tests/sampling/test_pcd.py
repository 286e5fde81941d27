import pytest
import torch

from jembench.errors import CheckpointError, SpecError
from jembench.interfaces import DataSpec
from jembench.sampling import chain
from jembench.sampling.pcd import PersistentChains
from jembench.sampling.sgld import Langevin

DATA = DataSpec(name="toy", shape=(1, 2, 2), num_classes=5)


ONE_CLASS = torch.zeros(5, dtype=torch.int64)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def flat(x, y):
    """An energy without slopes: chains stay where they are."""
    return torch.zeros(len(x)), torch.zeros_like(x)


def chains(*, reinit=0.0, size=20, steps=3, noise=0.0):
    return PersistentChains(
        DATA, Langevin(steps=steps, step_size=1, noise=noise), buffer_size=size, reinit=reinit
    )


def test_slots_are_drawn_without_replacement():
    sampler = chains()
    assert sorted(sampler.draw_slots(20, seeded()).tolist()) == list(range(20))
    many = torch.stack([sampler.draw_slots(5, seeded(seed)) for seed in range(2000)])
    assert all(len(set(row)) == 5 for row in many.tolist())
    counts = torch.bincount(many.flatten(), minlength=20)
    assert float((counts - 500).abs().max()) < 5 * (500 * 0.95) ** 0.5


def test_slots_of_a_class_belong_to_it_and_are_different():
    sampler = chains()
    y = torch.tensor([0, 4, 4, 4, 4, 2, 0])
    slots = sampler.draw_slots_of(y, seeded())
    assert torch.equal(slots // 4, y)
    assert len(set(slots.tolist())) == len(y)


def test_every_slot_of_a_class_is_drawn_equally_often():
    sampler = chains()
    drawn = torch.cat(
        [sampler.draw_slots_of(torch.tensor([3, 3]), seeded(seed)) for seed in range(2000)]
    )
    counts = torch.bincount(drawn, minlength=20)[12:16]
    assert counts.sum() == 4000
    assert float((counts - 1000).abs().max()) < 5 * (1000 * 0.5) ** 0.5


@pytest.mark.parametrize(
    ("act", "text"),
    [
        (
            lambda: chains().init(21, generator=seeded()),
            "A batch of 21 chains does not fit a replay buffer of 20",
        ),
        (
            lambda: chains().check_batch(5, conditional=True),
            "A batch of 5 chains .* of 4 images for each class",
        ),
        (
            lambda: chains(size=21).init(5, ONE_CLASS, generator=seeded()),
            "multiple of the number of classes",
        ),
    ],
)
def test_a_buffer_that_is_too_small_is_an_error_that_says_so(act, text):
    with pytest.raises(SpecError, match=text):
        act()


def test_restarts_happen_at_their_rate_and_begin_a_new_life():
    sampler = chains(reinit=0.25, size=2000)
    chain.draw(sampler, 2000, flat, seeded(1))
    chain.draw(sampler, 2000, flat, seeded(2))
    restarted = int((sampler.ages == 3).sum())
    assert restarted + int((sampler.ages == 6).sum()) == 2000
    assert abs(restarted - 500) < 5 * (500 * 0.75) ** 0.5


def test_kept_chains_know_their_ages_which_count_steps_and_begin_again_at_a_restart():
    sampler = chains(steps=3)
    assert sampler.kept() is None
    slots = chain.draw(sampler, 5, flat, seeded(1)).slots
    expected = torch.zeros(20, dtype=torch.int64)
    expected[slots] = 3
    assert torch.equal(sampler.kept().ages, expected)
    slots = chain.draw(sampler, 8, flat, seeded(2), steps=4).slots
    expected[slots] += 4
    first = sampler.kept()
    assert torch.equal(first.ages, expected)
    sampler.reinit = 1.0
    expected[chain.draw(sampler, 6, flat, seeded(3)).slots] = 3
    assert torch.equal(sampler.kept().ages, expected)
    assert not torch.equal(first.ages, expected)


def test_the_state_brings_the_chains_back():
    sampler, other = chains(noise=0.1), chains(noise=0.1)
    chain.draw(sampler, 10, flat, seeded(), torch.arange(10) % 5)
    other.load_state_dict({name: value.clone() for name, value in sampler.state_dict().items()})
    assert torch.equal(
        chain.draw(sampler, 10, flat, seeded(3), torch.arange(10) % 5).x,
        chain.draw(other, 10, flat, seeded(3), torch.arange(10) % 5).x,
    )


@pytest.mark.parametrize("conditional", [False, True])
def test_random_numbers_are_drawn_in_an_order_that_stays(conditional):
    """Whoever changes it changes the results of every seed."""

    def uniform(n):
        return torch.rand((n, *DATA.shape), generator=by_hand) * 2 - 1

    sampler, generator, by_hand = chains(reinit=0.4, noise=0.1), seeded(3), seeded(3)
    y = torch.tensor([4, 0, 1, 4, 2, 3]) if conditional else None
    images = uniform(20)
    for _ in range(3):
        state = chain.draw(sampler, 6, flat, generator, y)
        if conditional:
            order = torch.rand((5, 4), generator=by_hand).argsort(1)
            slots = y * 4 + order[y, torch.tensor([0, 0, 0, 1, 0, 0])]
        else:
            slots = torch.randperm(20, generator=by_hand)[:6]
        restart = torch.rand(6, generator=by_hand) < 0.4
        x = torch.where(restart.view(6, 1, 1, 1), uniform(6), images[slots])
        for _ in range(3):
            x = x + 0.1 * torch.randn(x.shape, generator=by_hand)
        images[slots] = x
        assert torch.equal(state.slots, slots)
        torch.testing.assert_close(state.x, x)
    torch.testing.assert_close(sampler.kept().x, images)
    assert torch.equal(generator.get_state(), by_hand.get_state())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_buffer_that_was_loaded_follows_its_chains_to_the_gpu():
    sampler, other = chains(), chains()
    generator = torch.Generator("cuda").manual_seed(0)
    chain.draw(sampler, 10, flat, generator)
    other.load_state_dict({name: value.cpu() for name, value in sampler.state_dict().items()})
    assert chain.draw(other, 10, flat, generator).x.is_cuda
    assert torch.equal(other.kept().x.cpu(), sampler.kept().x.cpu())


def test_a_buffer_of_another_size_is_refused():
    with pytest.raises(CheckpointError, match=r"\(20, 1, 2, 2\).*\(40, 1, 2, 2\)"):
        chains(size=40).load_state_dict(chains(size=20).state_dict())
