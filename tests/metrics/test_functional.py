"""Metrics of one's own tensors: their examples, and the same numbers as a run gives."""

import doctest
from pathlib import Path

import pytest
import torch

from jembench import metrics
from jembench.errors import Diverged, Remark, SpecError
from jembench.metrics import functional

LOGITS = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(60) % 4


def test_the_examples():
    tested = doctest.testmod(functional, extraglobs={"torch": torch})
    assert tested.attempted >= len(metrics.__all__)
    assert tested.failed == 0


def test_every_public_function_has_an_example():
    assert all(">>>" in getattr(metrics, name).__doc__ for name in metrics.__all__)


def test_arrays_and_tensors_give_the_same():
    assert metrics.ece(LOGITS.numpy(), LABELS.numpy(), bins=5) == metrics.ece(
        LOGITS, LABELS, bins=5
    )


def test_scores_of_sets_that_overlap_have_an_interval_within_0_and_1():
    value = metrics.auroc(LOGITS[:, 0] + 1, LOGITS[:, 1])
    assert 0 < value.low < value.value < value.high < 1
    pairs = (LOGITS[:, :1] + 1) > LOGITS[:, 1]
    assert value.value == pytest.approx(pairs.double().mean().item())


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: metrics.ece(LOGITS, LABELS[:5]), SpecError),
        (lambda: metrics.ece(LOGITS, LABELS + 1), SpecError),
        (lambda: metrics.ece(LOGITS, LABELS, bins=0), SpecError),
        (lambda: metrics.nll(LOGITS * torch.inf, LABELS), Diverged),
        (lambda: metrics.auroc([float("nan")], [0.0]), Diverged),
        (lambda: metrics.auroc([], [0.0]), SpecError),
    ],
)
def test_what_does_not_fit_is_refused(call, error):
    with pytest.raises(error):
        call()


@pytest.mark.parametrize(
    "name", [name for name in metrics.__all__ if name not in ("auroc", "accuracy")]
)
def test_probabilities_that_are_taken_for_logits_are_noticed(name, recwarn):
    measure, probabilities = getattr(metrics, name), LOGITS.softmax(1)
    for logits in (
        LOGITS,
        probabilities.log(),
        probabilities * 0.9,
        LOGITS.sigmoid(),
        torch.ones(60, 1),
    ):
        measure(logits, LABELS % logits.shape[1])
    assert not recwarn.list
    for array in (
        probabilities,
        probabilities.half(),
        probabilities.bfloat16(),
        torch.eye(4)[LABELS],
    ):
        with pytest.warns(Remark, match="Leave out the softmax"):
            measure(array, LABELS)
    assert metrics.accuracy(probabilities, LABELS) == metrics.accuracy(LOGITS, LABELS)


def test_no_module_has_the_name_of_a_function():
    """Importing such a module would put it in the function's place."""
    assert not {path.stem for path in Path(metrics.__path__[0]).glob("*.py")} & set(metrics.__all__)
