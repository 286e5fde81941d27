from itertools import islice

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jembench.errors import CheckpointError, JembenchError
from jembench.training.batches import IndexStream


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@given(n=st.integers(1, 40), batch_size=st.integers(1, 40), seed=st.integers(0, 99))
def test_an_epoch_shows_no_image_twice_and_drops_the_rest(
    n: int, batch_size: int, seed: int
) -> None:
    batch_size = min(batch_size, n)
    stream = IndexStream(n, batch_size, generator(seed))
    for _ in range(3):
        epoch = torch.cat(list(islice(stream, n // batch_size)))
        assert epoch.dtype == torch.int64
        assert len(epoch) == n // batch_size * batch_size
        assert len(set(epoch.tolist())) == len(epoch)
        assert 0 <= epoch.min() <= epoch.max() < n


def test_each_epoch_has_an_order_of_its_own() -> None:
    stream = IndexStream(100, 50, generator())
    first, second = (torch.cat(list(islice(stream, 2))) for _ in range(2))
    assert not torch.equal(first, second)
    assert torch.equal(first.sort().values, second.sort().values)


@given(before=st.integers(0, 12), seed=st.integers(0, 99))
def test_a_resumed_stream_goes_on_bit_for_bit(before: int, seed: int) -> None:
    # five batches an epoch: in the middle and at its ends
    stream = IndexStream(23, 4, generator(seed))
    list(islice(stream, before))
    state = {name: tensor.clone() for name, tensor in stream.state_dict().items()}
    expected = torch.stack(list(islice(stream, 12)))
    resumed = IndexStream(23, 4, generator(seed + 1))
    resumed.load_state_dict(state)
    assert torch.equal(torch.stack(list(islice(resumed, 12))), expected)


def test_a_state_of_other_data_is_refused() -> None:
    state = IndexStream(23, 4, generator()).state_dict()
    with pytest.raises(CheckpointError, match="made with 23 training images, and there are now 24"):
        IndexStream(24, 4, generator()).load_state_dict(state)


@pytest.mark.parametrize("batch_size", [0, 24])
def test_a_batch_must_be_fillable(batch_size: int) -> None:
    with pytest.raises(
        JembenchError, match=r"cannot be drawn from 23 training images.* from 1 to 23\."
    ):
        IndexStream(23, batch_size, generator())
