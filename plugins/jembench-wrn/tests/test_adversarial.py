"""Adversarial training: its attack against hand-made cases, its bounds and modes, its recipes, its
exact resumption.
"""

import dataclasses
import math
from functools import partial

import pytest
import torch
from torch import Generator, nn
from torch.nn import functional as F
from torch.testing import assert_close

from jembench import seeds
from jembench.attacks.threat import Attack, distance
from jembench.catalog import registry
from jembench.errors import SpecError
from jembench.experiment.plan import resolve_model
from jembench.experiment.recipe import Optimizer, Recipe, TrainingData, load
from jembench.interfaces import (
    Batch,
    Classifier,
    DataSpec,
    Density,
    Energy,
    Generative,
    Split,
    Trainable,
)
from jembench.training.loop import Trainer
from jembench_wrn.adversarial_training import Adversarial, pgd

SHAPE = (1, 4, 4)
DATA = DataSpec(name="toy", shape=SHAPE, num_classes=3)
# which are the logits of nn.Flatten
PIXELS = DataSpec(name="pixels", shape=(1, 1, 2), num_classes=2)


def make(options="", data=DATA):
    with seeds.drawing(0, "initialisation"):
        return registry.resolve("models", f"adversarial:net=small-4{options}").make(data)


def by_hand(net, data=PIXELS, **changed):
    defaults = {"norm": "linf", "eps": 0.1, "steps": 3, "step_size": 0.05}
    attack = Attack(**{**defaults, **changed})
    return Adversarial(net, data, partial(pgd, attack=attack, random_start=False))


def attack_of(model):
    return model.objective.keywords["attack"]


def batch(data=DATA, n=6):
    low, high = data.bounds
    generator = Generator().manual_seed(0)
    pixels = torch.rand(n, *data.shape, generator=generator)
    x = pixels * (high - low) + low
    nowhere = torch.full_like(x, torch.nan)
    return Batch(nowhere, x, torch.arange(n) % data.num_classes)


def seen(model, labelled):
    shown = []
    net = model.net
    hook = net.register_forward_pre_hook(lambda _, inputs: shown.append(inputs[0].detach()))
    model.training_loss(labelled, None)
    hook.remove()
    low, high = model.data.bounds
    return (shown[-1] - low) / (high - low)


def unit(x, data):
    low, high = data.bounds
    return (x - low) / (high - low)


def test_is_a_classifier_that_is_found_by_its_name():
    resolved = registry.resolve("models", "adversarial:threat=l2@0.5,norm=batch")
    model = resolved.make(DATA)
    assert resolved.component.distribution == "jembench-wrn"
    assert isinstance(model, Classifier)
    assert isinstance(model, Energy)
    assert isinstance(model, Trainable)
    assert not isinstance(model, Generative)
    assert not isinstance(model, Density)
    assert model.chains == "none"
    assert any(isinstance(module, nn.BatchNorm2d) for module in model.modules())


@pytest.mark.parametrize(
    ("options", "eps", "step_size"),
    [
        ("", 8 / 255, 2.5 * 8 / 255 / 7),
        (",threat=l2@0.5", 0.5, 2.5 * 0.5 / 7),
        (",threat=linf@16/255,steps=10,step_size=0.125", 16 / 255, 2 / 255),
    ],
)
def test_steps_are_a_share_of_the_size(options, eps, step_size):
    attack = attack_of(make(options))
    assert attack.eps == pytest.approx(eps)
    assert attack.step_size == pytest.approx(step_size)


@pytest.mark.parametrize(
    "threat", ["l2", "0.5", "l1@0.5", "l2@", "l2@half", "linf@0", "linf@-8/255", "@0.5", "l2@0.5@1"]
)
def test_size_has_a_norm_and_a_norm_has_a_size(threat):
    with pytest.raises(
        SpecError, match=f"'{threat}' is no threat.* threat=linf@8/255 or outlier_threat=l2@0.5"
    ):
        make(f",threat={threat}")


@pytest.mark.parametrize("option", ["steps=0", "step_size=0", "step_size=-0.1"])
def test_attack_without_a_step_is_refused(option):
    with pytest.raises(
        SpecError,
        match=rf"{option.replace('=', ' of adversarial is ')}(\.0)?; it must be greater than",
    ):
        make(f",{option}")


@pytest.mark.parametrize(
    ("recipe", "eps", "step_size"),
    [("adversarial", 8 / 255, 2 / 255), ("adversarial-digits", 0.15, 2.5 * 0.15 / 7)],
)
def test_recipes_say_what_the_model_stands_against(recipe, eps, step_size):
    attack = attack_of(resolve_model("adversarial:net=small-4", load(recipe)).make(DATA))
    assert attack.norm == "linf"
    assert attack.eps == pytest.approx(eps)
    assert attack.step_size == pytest.approx(step_size)


@pytest.mark.parametrize("recipe", ["adversarial", "adversarial-digits"])
def test_another_norm_takes_no_size_from_a_recipe(recipe):
    attack = attack_of(
        resolve_model("adversarial:net=small-4,threat=l2@0.7", load(recipe)).make(DATA)
    )
    assert attack.norm == "l2"
    assert attack.eps == 0.7
    assert attack.step_size in (pytest.approx(0.7 / 4), pytest.approx(2.5 * 0.7 / 7))


def test_pixels_are_moved_against_the_label_as_far_as_eps_in_either_bounds():
    for bounds in [(-1.0, 1.0), (0.0, 1.0)]:
        shape = (1, 1, 2)
        data = DataSpec(name="pixels", shape=shape, num_classes=2, bounds=bounds)
        low, high = bounds
        pixels = torch.tensor([[0.5, 0.5], [0.05, 0.98]])
        x = pixels.view(2, *data.shape) * (high - low) + low
        labelled = Batch(torch.full_like(x, torch.nan), x, torch.zeros(2, dtype=torch.int64))
        # the second one hits the bounds
        expected = torch.tensor([[0.4, 0.6], [0.0, 1.0]])
        moved = seen(by_hand(nn.Flatten(), data), labelled)
        assert_close(moved.flatten(1), expected)


def test_l2_attack_goes_along_the_gradient_and_ends_on_the_ball():
    x = torch.zeros(2, *PIXELS.shape)  # in the middle of -1 to 1
    labelled = Batch(x, x, torch.tensor([0, 1]))
    moved = seen(by_hand(nn.Flatten(), norm="l2"), labelled) - 0.5
    side = 0.1 / math.sqrt(2)
    expected = torch.tensor([[-side, side], [side, -side]])
    assert_close(moved.flatten(1), expected)


def test_loss_is_the_cross_entropy_of_the_adversarial_images():
    model, labelled = make(), batch()
    again = make()
    images = seen(model, labelled) * 2 - 1
    loss = again.training_loss(labelled, None)
    expected = F.cross_entropy(again.logits(images), labelled.y_labelled)
    assert_close(loss.total, expected)
    assert_close(loss.parts["cross_entropy"], expected.detach())
    right = again.logits(images).argmax(1) == labelled.y_labelled
    accuracy = right.double().mean()
    assert float(loss.parts["adversarial_accuracy"]) == pytest.approx(float(accuracy))
    assert loss.energies is None


@pytest.mark.parametrize("threat", ["linf", "l2"])
@pytest.mark.parametrize("bounds", [(-1.0, 1.0), (0.0, 1.0)])
def test_attack_stays_within_eps_and_bounds_and_raises_the_loss(threat, bounds):
    shape = (1, 4, 4)
    data = DataSpec(name="toy", shape=shape, num_classes=3, bounds=bounds)
    model = make(f",threat={threat}@0.2", data).eval()
    labelled = batch(data)
    moved = seen(model, labelled)
    x = unit(labelled.x_labelled, data)
    assert (distance(x, moved, threat) <= 0.2 + 1e-6).all()
    assert (distance(x, moved, threat) > 0.1).all()
    assert moved.min() >= 0
    assert moved.max() <= 1
    with torch.no_grad():
        before, after = (
            F.cross_entropy(model.logits_of_unit(at), labelled.y_labelled, reduction="none")
            for at in (x, moved)
        )
    assert (after > before).all()


def test_noise_beyond_the_bounds_is_clamped_before_the_attack():
    x = torch.tensor([[1.3, -1.2]]).view(1, *PIXELS.shape)
    labelled = Batch(x, x, torch.tensor([0]))
    moved = seen(by_hand(nn.Flatten()), labelled)
    expected = torch.tensor([0.9, 0.1])
    assert_close(moved.flatten(), expected)


def test_attack_sees_the_network_in_evaluation_and_the_loss_in_training():
    class Watched(nn.Flatten):
        modes = ()

        def forward(self, x):
            self.modes += (self.training,)
            return super().forward(x)

    model = by_hand(Watched()).train()
    model.training_loss(batch(PIXELS), None)
    assert model.net.modes == (False, False, False, True)
    assert model.training


def test_batch_norm_takes_its_statistics_of_the_adversarial_images_alone():
    model = make(",norm=batch").train()
    labelled = batch()
    same = make(",norm=batch").train()
    images = seen(model, labelled) * 2 - 1
    same.logits(images)
    statistics = [dict(m.named_buffers()) for m in (model.net, same.net)]
    assert statistics[0].keys() == statistics[1].keys() != set()
    for name, value in statistics[0].items():
        assert_close(value, statistics[1][name])


def test_parameters_get_the_gradient_of_the_loss_alone():
    model, labelled = make(), batch()
    with seeds.drawing(0, "training"):
        images = seen(make(), labelled) * 2 - 1
    with seeds.drawing(0, "training"):
        model.training_loss(labelled, None).total.backward()
    got = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    F.cross_entropy(model.logits(images), labelled.y_labelled).backward()
    for gradient in got:
        assert gradient.abs().sum() > 0
    expected = [parameter.grad for parameter in model.parameters()]
    assert_close(got, expected)


def test_the_attack_starts_elsewhere_in_each_batch_and_each_fit():
    # as good as the start itself
    model, labelled = make(",threat=linf@0.3,steps=1,step_size=1e-6"), batch()
    with seeds.drawing(0, "training"):
        first = seen(model, labelled)
        second = seen(model, labelled)
    with seeds.drawing(1, "training"):
        of_another_fit = seen(model, labelled)
    with seeds.drawing(0, "training"):
        again = seen(model, labelled)
    assert (first - second).abs().max() > 0.1
    assert (first - of_another_fit).abs().max() > 0.1
    assert torch.equal(first, again)


def test_without_a_random_start_the_attack_begins_at_the_image():
    labelled = batch()
    moved = seen(make(",random_start=false,steps=1,step_size=1e-6"), labelled)
    assert_close(moved, unit(labelled.x_labelled, DATA), atol=1e-5, rtol=0)


def images(n=90):
    """Three classes that differ in the brightness of the image."""
    labels = torch.arange(n) % 3
    generator = Generator().manual_seed(0)
    noise = torch.randint(0, 40, (n, 1, 4, 4), generator=generator)
    pixels = noise + 100 * labels[:, None, None, None]
    return Split(pixels.clamp(max=255).to(torch.uint8), labels)


def trainer(model, **optimizer):
    adam = Optimizer(name="adam", learning_rate=0.01, **optimizer)
    data = TrainingData(noise=0.03, validation=0, shared=True)
    every_two = {"epochs": 2, "log_every": 2, "checkpoint_every": 2}
    recipe = Recipe(name="toy", title="", batch_size=15, optimizer=adam, data=data, **every_two)
    return Trainer(model, DATA, images(), recipe, seed=0, device=torch.device("cpu"))


@pytest.mark.parametrize("options", [",norm=batch,dropout=0.3", ",threat=l2@0.5"])
def test_training_goes_on_bit_for_bit(options):
    straight, stopped, resumed = (trainer(make(options)) for _ in range(3))
    losses = [float(straight.iterate()["loss"]) for _ in range(6)]
    for _ in range(3):
        stopped.iterate()
    torch.rand(7)
    resumed.load_state_dict(stopped.state_dict())
    for expected in losses[3:]:
        assert float(resumed.iterate()["loss"]) == expected
    for name, value in straight.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name]), name


def test_training_draws_nothing_from_the_global_generator():
    before = torch.get_rng_state()
    trainer(make()).iterate()
    assert torch.equal(before, torch.get_rng_state())


def test_cost_of_training_is_told_as_it_is():
    class Counted(nn.Flatten):
        forward_passes = 0

        def forward(self, x):
            self.forward_passes += 1
            return super().forward(x)

    model = by_hand(Counted(), steps=5)
    model.training_loss(batch(PIXELS), None)
    assert model.net.forward_passes == 6


def test_attack_in_bfloat16_leaves_every_weight_its_gradient():
    """Autocast keeps a weight that it has cast.

    One cast while the attack ran would have no gradient of the loss.
    """
    data = dataclasses.replace(
        DATA, shape=(1, 16, 16)
    )  # on maps of one pixel, kernels of the CPU read memory that nothing wrote
    model = make(data=data)
    with torch.autocast("cpu", torch.bfloat16):
        loss = model.training_loss(batch(data), None)
    loss.total.backward()
    for parameter in model.parameters():
        assert parameter.grad.abs().sum() > 0
