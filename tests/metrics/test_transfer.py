"""Images made against a linear model, shown to it again after a chain that moves every image by a
known vector.
"""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from jembench.data.pixels import to_float
from jembench.errors import NotApplicable
from jembench.interfaces import ChainState, DataSpec
from jembench.metrics.pgd import PGD, Transfer
from jembench.models.energies import LogitModel
from jembench.stats.intervals import wilson

N = 30
BUDGET = {"images": N, "restarts": 1, "steps": 8}


@dataclass
class Drift:
    """A chain that goes straight on."""

    by: Tensor
    steps: int = 20

    def step(self, state: ChainState, grad_energy, generator) -> ChainState:
        return state._replace(x=state.x + self.by)

    def start(self, n, y=None, *, generator): ...

    def init(self, n, y=None, *, generator): ...

    def finish(self, state): ...

    def kept(self): ...

    def state_dict(self): ...

    def load_state_dict(self, state): ...


@pytest.fixture
def evaluation(fake):
    """Images of two classes, none too near to the hyperplane that divides them; the labels are the
    model's answers.
    """
    generator = torch.Generator().manual_seed(0)
    net = nn.Linear(16, 2, bias=False)
    net.weight.data = torch.randn(2, 16, generator=generator)
    model = LogitModel(nn.Sequential(nn.Flatten(), net))
    images = fake.images(2 * N, 1)
    with torch.no_grad():
        margin = model.logits(to_float(images, (-1.0, 1.0))) @ torch.tensor([-1.0, 1.0])
    far = (margin.abs() > 0.3).nonzero().flatten()[:N]
    labels = (margin[far] > 0).long()
    spec = DataSpec(name="toy", shape=(1, 4, 4), num_classes=2)
    drift = Drift(torch.zeros(1, 4, 4))
    return fake.Evaluation(
        model=model, spec=spec, sets={"test": images[far]}, labels=labels, sampler=drift
    )


def towards(evaluation, margin: float) -> Tensor:
    """The shift, in the model's units, that adds so much to f(x)[1] - f(x)[0]."""
    weight = evaluation.model.net[1].weight.detach()
    slope = weight[1] - weight[0]
    return (margin * slope / slope.square().sum()).reshape(1, 4, 4)


def margins(evaluation, images) -> np.ndarray:
    with torch.no_grad():
        logits = evaluation.model.logits(2 * torch.from_numpy(images).float() - 1)
    return (logits[:, 1] - logits[:, 0]).numpy()


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_a_chain_towards_one_class_refines_its_images_back_and_no_others(evaluation, norm):
    """The images found are just behind the hyperplane: a small shift takes all those of one class
    back.
    """
    source = PGD(norm=norm, **BUDGET).attack(evaluation).arrays
    overshoot = np.abs(margins(evaluation, source["adversarial"])).max()
    clean = np.abs(margins(evaluation, source["image"] / 255)).min()
    assert 3 * overshoot < clean
    evaluation.sampler.by = towards(evaluation, 2 * overshoot / 3)  # in three steps
    measured = Transfer(norm=norm, refine=3, eot=2, **BUDGET).compute(evaluation)
    arrays = measured.arrays
    of_0 = arrays["label"] == 0
    assert 0.2 < of_0.mean() < 0.8
    assert arrays["found-source"].all()
    assert np.array_equal(arrays["found"], of_0)
    assert np.array_equal(arrays[f"distance-{norm}-as-it-is"], source[f"distance-{norm}"])
    assert np.array_equal(arrays["found-as-it-is"], source["found"])
    value = measured.values[f"transfer-{norm}"]
    ends = [100 * end for end in wilson(int(of_0.sum()), N)]
    assert value[:4] == pytest.approx((100 * of_0.mean(), *ends, N))
    assert np.array_equal(arrays["distance-linf"][of_0], source["distance-linf"][of_0])
    assert (arrays["distance-linf"][~of_0] == 1).all()


def test_accuracies_are_those_of_the_images_that_still_deceive(evaluation):
    evaluation.sampler.by = towards(evaluation, 0.05)
    measured = Transfer(norm="l2", refine=1, **BUDGET).compute(evaluation)
    arrays = measured.arrays
    far = np.linalg.norm((arrays["adversarial"] - arrays["image"] / 255).reshape(N, -1), axis=1)
    after = margins(evaluation, arrays["adversarial"]) + 0.05
    misclassified = (after > 0) != (arrays["label"] == 1)
    shares = []
    for eps in ("64/255", "128/255", "255/255"):
        value = measured.values[f"transfer-l2@{eps}"]
        shares.append(value.value)
        assert value.value == pytest.approx(
            100 * (~misclassified | (far > int(eps.partition("/")[0]) / 255)).mean()
        )
        assert value.better == "higher"
    assert 100 > shares[1] > shares[2] > 0


def test_what_the_refined_model_misclassifies_as_it_is_counts_as_broken_and_is_not_shown(
    evaluation,
):
    evaluation.sampler.by = towards(evaluation, 100.0)  # everything becomes class 1
    measured = Transfer(refine=1, **BUDGET).compute(evaluation)
    arrays = measured.arrays
    of_0 = arrays["label"] == 0
    assert np.array_equal(arrays["found"], of_0)
    assert (arrays["distance-linf"][of_0] == 0).all()
    assert np.array_equal(arrays["found-source"], ~of_0)
    assert measured.values["transfer-linf"].value == 0
    assert measured.values["transfer-linf"].n == (~of_0).sum()
    assert measured.values["transfer-linf@4/255"].value == pytest.approx(100 * (~of_0).mean())


def test_there_is_no_share_where_no_image_can_be_shown(evaluation):
    evaluation.labels = 1 - evaluation.labels
    metric = Transfer(refine=1, **BUDGET)
    measured = metric.compute(evaluation)
    assert set(measured.values) == {f"transfer-linf@{eps}/255" for eps in (4, 8, 16)}
    assert metric.resamplings(measured.arrays).keys() == measured.values.keys()
    assert all(value.value == 0 for value in measured.values.values())


def test_the_images_of_the_attack_itself_are_not_made_twice(evaluation):
    PGD(**BUDGET).compute(evaluation)
    before = set(evaluation.memory)
    assert before
    Transfer(refine=2, **BUDGET).compute(evaluation)
    assert {name.partition("-")[0] for name in set(evaluation.memory) - before} == {"transfer"}


def test_a_resample_counts_the_images_that_are_shown_alone(evaluation):
    evaluation.sampler.by = towards(evaluation, 0.02)
    metric = Transfer(refine=1, **BUDGET)
    measured = metric.compute(evaluation)
    shown, deceives = measured.arrays["found-source"].copy(), measured.arrays["found"]
    shown[::2] = False
    half = metric.resamplings({**measured.arrays, "found-source": shown})["transfer-linf"].statistic
    drawn = np.array([np.arange(N), np.arange(N) // 2 * 2])
    assert half(drawn) == pytest.approx([100 * deceives[1::2].mean(), 0])


def test_a_model_without_chains_has_nothing_to_transfer_to(evaluation):
    evaluation.sampler = None
    with pytest.raises(NotApplicable, match="trained without chains"):
        Transfer(refine=1, **BUDGET).compute(evaluation)
    assert not evaluation.memory
