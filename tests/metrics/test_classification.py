from __future__ import annotations

import math

import numpy as np
import pytest
import sklearn.metrics
import torch

from jembench.errors import NotApplicable, SpecError
from jembench.metrics.classification import ECE, NLL, Accuracy, AdaptiveECE, Brier, ClasswiseECE

METRICS = {"accuracy": Accuracy(), "nll": NLL(), "brier": Brier()}


@pytest.fixture
def evaluation(fake):
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(3, (200,), generator=generator)
    logits = 2 * torch.randn(200, 3, generator=generator)
    logits[torch.arange(200), labels] += 2
    return fake.Evaluation(test_logits=logits, labels=labels)


def value(metric, evaluation):
    return METRICS[metric].compute(evaluation).values[metric]


@pytest.mark.parametrize("make", [Accuracy, NLL, Brier, ECE, AdaptiveECE, ClasswiseECE])
def test_noise_is_asked_for_and_told(make, evaluation):
    clean, noisy = (make(**options).compute(evaluation) for options in ({}, {"data_noise": 0.03}))
    assert list(dict.fromkeys(evaluation.noises)) == [0.0, 0.03]
    assert ",data_noise=0," in clean.protocol
    assert noisy.protocol == clean.protocol.replace(",data_noise=0,", ",data_noise=0.03,")
    with pytest.raises(SpecError, match=r"data_noise of .* is -1; it must be at least 0"):
        make(data_noise=-1.0)


def test_values_agree_with_scikit_learn(evaluation):
    probabilities = evaluation.test_logits.double().softmax(1).numpy()
    y = evaluation.labels.numpy()
    accuracy = 100 * sklearn.metrics.accuracy_score(y, probabilities.argmax(1))
    assert value("accuracy", evaluation).value == pytest.approx(accuracy, abs=1e-12)
    assert value("nll", evaluation).value == pytest.approx(
        sklearn.metrics.log_loss(y, probabilities), abs=1e-12
    )
    assert METRICS["accuracy"].compute(evaluation).details == {
        "chance": 100 / probabilities.shape[1]
    }
    brier = sklearn.metrics.brier_score_loss(y, probabilities, scale_by_half=False)
    assert value("brier", evaluation).value == pytest.approx(brier, abs=1e-12)


@pytest.mark.parametrize(
    ("logits", "correct", "nll", "brier"),
    [
        ([1000.0, 0.0, 0.0], True, 0.0, 0.0),
        ([0.0, 1000.0, 0.0], False, 1000.0, 2.0),
        ([0.0, 0.0, 0.0], True, math.log(3), (2 / 3) ** 2 + 2 / 9),
    ],
    ids=["sure and right", "sure and wrong", "undecided"],
)
def test_the_best_the_worst_and_the_undecided(logits, correct, nll, brier):
    f, y = torch.tensor([logits]).double(), torch.tensor([0])
    expected = {"accuracy": ("correct", correct), "nll": ("nll", nll), "brier": ("brier", brier)}
    for metric, (array, score) in expected.items():
        assert METRICS[metric].scores(f, y)[array] == pytest.approx([score])


@pytest.mark.parametrize("top", [1, 2])
def test_top_k_accuracy_agrees_with_scikit_learn(top, evaluation):
    ours = Accuracy(top=top).compute(evaluation)
    theirs = 100 * sklearn.metrics.top_k_accuracy_score(
        evaluation.labels.numpy(), evaluation.test_logits.numpy(), k=top
    )
    label = "accuracy" if top == 1 else "top-2-accuracy"
    assert ours.values[label].value == pytest.approx(theirs, abs=1e-12)
    assert ours.details == {"chance": pytest.approx(100 * top / 3)}
    assert ("top=2" in ours.protocol) == (top == 2)


def test_of_equal_logits_the_first_is_the_largest():
    f, y = torch.tensor([[1.0, 2.0, 2.0, 2.0]]).repeat(4, 1).double(), torch.arange(4)
    ranks = [Accuracy(top=top).scores(f, y)["correct"].sum() for top in (1, 2, 3)]
    assert ranks == [1, 2, 3]
    assert Accuracy().scores(f, y)["correct"].tolist() == (f.argmax(1) == y).tolist()


def test_as_many_classes_as_count_as_correct(evaluation):
    with pytest.raises(NotApplicable, match="has 3 classes, all of which are among the 3 of"):
        Accuracy(top=3).compute(evaluation)


def test_scores_are_computed_in_float64(fake):
    evaluation = fake.Evaluation(test_logits=torch.tensor([[20.0, 0.0]]), labels=torch.tensor([0]))
    assert NLL().compute(evaluation).arrays["nll"] == pytest.approx(
        [math.log1p(math.exp(-20))], rel=1e-9
    )
    assert Brier().compute(evaluation).arrays["brier"].dtype == np.float64
    # float32 would say 1
    assert ECE().compute(evaluation).arrays["confidence"][0] == 1 / (1 + np.exp(-20.0)) < 1
