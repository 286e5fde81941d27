import pytest
import torch
from torch import nn
from torch.nn import functional as F

from jembench.data.pixels import to_float
from jembench.errors import CheckpointError, JembenchError, SpecError
from jembench.experiment import recipe as recipes
from jembench.interfaces import Loss, Split
from jembench.training.guard import Adjustment
from jembench.training.loop import Trainer
from tests.training.conftest import DATA, linear

OUTLIERS = {"data.outliers": '"mixture:starts=\\"uniform,permuted\\""', "data.outlier_batch": 5}


@pytest.mark.parametrize("name", ["jem", "factored", "classifier", "outliers"])
def test_a_loaded_state_goes_on_bit_for_bit_beside_its_origin(name, make_trainer, toy_models):
    settings = OUTLIERS if name == "outliers" else {}
    straight, resumed = (make_trainer(toy_models[name], **settings) for _ in range(2))
    for _ in range(7):  # in the middle of an epoch of 9 iterations
        straight.iterate()
    resumed.load_state_dict(straight.state_dict())
    for _ in range(7):
        expected, got = straight.iterate(), resumed.iterate()
        assert {k: float(v) for k, v in got.items()} == {k: float(v) for k, v in expected.items()}
    for name, value in straight.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name])


def test_outliers_are_new_in_each_iteration_and_counted(make_trainer, toy_models):
    trainer = make_trainer(toy_models["outliers"], **OUTLIERS)
    first, second = trainer.batches.draw().outliers, trainer.batches.draw().outliers
    assert first.shape == second.shape == (5, *DATA.shape)
    assert not torch.equal(first, second)
    trainer.iterate()
    assert trainer.passes == 9 + 5
    # of a model whose loss needs none
    assert make_trainer(**OUTLIERS).batches.draw().outliers is None


def test_a_loss_that_needs_outliers_asks_the_recipe_for_them(make_trainer, toy_models):
    with pytest.raises(SpecError, match=r"names no outliers, .*--set data\.outliers=uniform"):
        make_trainer(toy_models["outliers"])


@pytest.mark.parametrize("sharpness", [0, 0.1])
def test_a_clipped_step_is_one_on_the_gradient_scaled_in_common(
    sharpness, make_trainer, toy_models
):
    """Compare steps of SGD without momentum, which are the rate times the gradient."""
    steps = {}
    for clip in (0, 0.01, 1000):
        settings = {
            "optimizer.name": "sgd",
            "optimizer.clip": clip,
            "optimizer.sharpness": sharpness,
        }
        trainer = make_trainer(toy_models["classifier"], **settings)
        before = nn.utils.parameters_to_vector(trainer.model.parameters()).detach()
        trainer.iterate()
        steps[clip] = nn.utils.parameters_to_vector(trainer.model.parameters()).detach() - before
    assert torch.equal(steps[1000], steps[0])
    torch.testing.assert_close(
        steps[0.01], steps[0] * (0.01 * 0.01 / steps[0].norm()), rtol=1e-3, atol=1e-8
    )


def test_a_training_keeps_the_precision_that_it_began_with(make_trainer):
    """Auto means another one then, as on another machine."""
    begun, resumed = (make_trainer(**{"compute.precision": one}) for one in ("bfloat16", "auto"))
    assert resumed.functions.computed["precision"] == "float32"
    begun.iterate()
    resumed.load_state_dict(begun.state_dict())
    assert resumed.functions.computed["precision"] == "bfloat16"
    assert float(resumed.iterate()["loss"]) == float(begun.iterate()["loss"])


def test_a_training_does_not_go_on_by_the_random_numbers_of_a_gpu(make_trainer):
    trainer = make_trainer()
    of_a_gpu = trainer.state_dict() | {"generator": torch.zeros(16, dtype=torch.uint8)}
    with pytest.raises(CheckpointError, match="another kind of device than cpu"):
        trainer.load_state_dict(of_a_gpu)


def test_conditional_chains_are_of_the_batch_s_own_classes(make_trainer, toy_models):
    trainer = make_trainer(toy_models["factored"])
    seen = []
    trainer.model.watch = lambda batch, negatives, loss: seen.append((batch, negatives)) or loss
    trainer.iterate()
    ((batch, negatives),) = seen
    assert torch.equal(batch.y_labelled, negatives.y)
    assert not negatives.x.requires_grad


def test_the_two_batches_are_independent_draws(make_trainer):
    batch = make_trainer(**{"data.noise": 0}).batches.draw()
    assert not torch.equal(batch.x, batch.x_labelled)


def test_validation_images_are_not_trained_on(make_trainer):
    trainer = make_trainer()
    assert [len(images) for images, _ in trainer.batches.sources.values()] == [81, 81]
    assert len(trainer.held.validation.images) == 9
    assert trainer.batches.per_epoch == 9
    assert trainer.iterations == 36


@pytest.mark.parametrize(
    ("name", "iterations"),
    [
        ("paper", 150 * 781),
        ("paper-4000-labels", 150 * 781),
        ("report-wrn-28-2", 150 * 781),
        ("student", 150 * 390),
        ("code", 200 * 703),
        ("jem++", 150 * 703),
        ("sada", 78_000),
        ("fast", 18 * 382),
    ],
)
def test_what_the_epochs_of_the_sources_come_to_on_the_50000_images_of_cifar10(
    toy_models, name, iterations
):
    images = Split(torch.zeros(50_000, 1, 4, 4, dtype=torch.uint8), torch.arange(50_000) % 3)
    recipe = recipes.load(name, ["data.pad=0"])
    trainer = Trainer(
        toy_models["classifier"](linear()), DATA, images, recipe, seed=0, device=torch.device("cpu")
    )
    assert trainer.iterations == iterations
    if name == "sada":  # milestones are counted in the same epochs
        factors = [
            recipe.schedule.make()(i, trainer.batches.per_epoch, iterations)
            for i in (23_399, 23_400, 70_200)
        ]
        assert factors == pytest.approx([1, 0.2, 0.2**3])


CLEAN = {"data.noise": 0, "data.stratified": "true"}


def batches(trainer, n):
    return [trainer.batches.draw() for _ in range(n)]


def which(x):
    """Images told apart by their pixels."""
    return {image.numpy().tobytes() for image in x}


def labels_of(seen):
    """The label that came with each image."""
    return {
        image.numpy().tobytes(): int(label)
        for batch in seen
        for image, label in zip(batch.x_labelled, batch.y_labelled, strict=True)
    }


def test_labels_stay_with_their_images(make_trainer):
    numbers = torch.arange(90)
    images = Split(numbers.to(torch.uint8)[:, None, None, None].expand(-1, 1, 4, 4), numbers)
    for batch in batches(
        make_trainer(images=images, **{"data.noise": 0, "data.pad": 1, "data.flip": "true"}), 3
    ):
        assert batch.x_labelled.dtype == torch.float32
        levels = to_float(batch.y_labelled.to(torch.uint8), DATA.bounds)
        assert torch.equal(
            batch.x_labelled, levels[:, None, None, None].expand_as(batch.x_labelled)
        )


def test_a_labelled_subset_has_as_many_images_of_each_class_and_p_x_draws_from_all(make_trainer):
    seen = batches(make_trainer(**CLEAN, **{"data.labelled": 12, "data.labelled_batch": 4}), 9)
    labelled = labels_of(seen)
    assert sorted(labelled.values()) == [0] * 4 + [1] * 4 + [2] * 4
    assert {len(batch.x_labelled) for batch in seen} == {4}
    marginal = set().union(*(which(batch.x) for batch in seen))
    assert len(marginal) == 81  # an epoch: every training image
    assert labelled.keys() < marginal


@pytest.mark.parametrize(
    ("name", "overrides", "text"),
    [
        (
            "jem",
            {"data.pad": 4},
            "Images of 4x4 cannot be padded by 4 reflected pixels. Pad by 3 or less",
        ),
        ("jem", {"batch_size": 82}, "A batch of 82 cannot be drawn from 81"),
        (
            "jem",
            {"chains.sampler": '"pcd:buffer=8"'},
            "A batch of 9 chains does not fit a replay buffer of 8",
        ),
        (
            "factored",
            {"chains.sampler": '"pcd:buffer=24"'},
            "A batch of 9 chains does not fit a replay buffer of 8 images for each class",
        ),
        (
            "factored",
            {"chains.sampler": '"pcd:buffer=28"'},
            "cannot be shared out evenly among 3 classes",
        ),
        (
            "jem",
            {"chains.sampler": '"pcd:buffer=24"', "chains.conditional": "true"},
            "A batch of 9 chains does not fit a replay buffer of",
        ),
    ],
)
def test_what_a_later_iteration_would_stumble_over_is_refused_at_once(
    make_trainer, toy_models, name, overrides, text
):
    with pytest.raises(JembenchError, match=text):
        make_trainer(toy_models[name], **overrides)


def test_the_labelled_batch_has_a_size_of_its_own(make_trainer, toy_models):
    seen = []
    for name in ("jem", "factored"):
        trainer = make_trainer(
            toy_models[name],
            **{"data.labelled_batch": 15, "chains.sampler": '"pcd:steps=2,buffer=90"'},
        )
        trainer.model.watch = lambda batch, negatives, loss: seen.append((batch, negatives)) or loss
        trainer.iterate()
        assert trainer.batches.per_epoch == 9  # counted in batches for p(x)
    for batch, _ in seen:
        assert (len(batch.x), len(batch.x_labelled), len(batch.y_labelled)) == (9, 15, 15)
    # as many samples as there is data beside them
    assert [len(negatives.x) for _, negatives in seen] == [9, 15]


@pytest.mark.parametrize("both", [True, False])
def test_augmentation_may_be_for_the_labelled_batch_alone(make_trainer, both):
    trainer = make_trainer(**CLEAN, **{"data.pad": 1, "data.augment_marginal": str(both).lower()})
    originals = which(to_float(trainer.batches.sources["marginal"][0], trainer.data.bounds))
    seen = batches(trainer, 9)
    assert not set().union(*(which(batch.x_labelled) for batch in seen)) <= originals
    assert (set().union(*(which(batch.x) for batch in seen)) <= originals) == (not both)


def test_both_terms_may_be_trained_on_the_same_images(make_trainer):
    trainer = make_trainer(**{"data.shared": "true"})
    for batch in batches(trainer, 2):
        assert torch.equal(batch.x, batch.x_labelled)
    seen = []
    trainer.model.register_forward_pre_hook(lambda _, images: seen.append(len(images[0])))
    trainer.iterate()
    assert seen[-1] == 18  # one pass: the images once, and as many samples


def test_few_images_get_as_many_iterations_as_the_recipe_says_at_least(make_trainer):
    least = make_trainer().iterations + 3
    assert make_trainer(least_iterations=least).iterations == least


class Watched:
    """A trainer's dE/dx, and what it was asked."""

    def __init__(self, trainer):
        self.calls, self.evaluate = [], trainer.functions.grad_energy
        trainer.functions.grad_energy = self

    def __call__(self, x, y):
        found = self.evaluate(x, y)
        self.calls.append((x, y, *found))
        return found


def test_conditional_chains_of_a_marginal_model_have_uniform_classes_that_are_thrown_away(
    make_trainer,
):
    trainer = make_trainer(**{"chains.conditional": "true", "data.labelled": 30})
    watched, seen = Watched(trainer), []
    trainer.model.watch = lambda batch, negatives, loss: seen.append((batch, negatives)) or loss
    x, y, energy, grad = (trainer.iterate(), watched.calls[-1])[1]
    x = x.clone().requires_grad_()
    # One step of the optimiser later the weights are others: their E(x, y) is asked for anew.
    energy, grad = watched.evaluate(x, y)
    logits = trainer.model.logits(x)
    torch.testing.assert_close(energy, -logits[torch.arange(9), y].detach())
    expected = torch.autograd.grad(-logits[torch.arange(9), y].sum(), x)[0]
    torch.testing.assert_close(grad, expected)
    for _ in range(199):
        trainer.iterate()
    assert all(negatives.y is None for _, negatives in seen)
    classes = [watched.calls[3 * i][1] for i in range(200)]
    assert all(
        torch.equal(watched.calls[3 * i + step][1], classes[i])
        for i in range(200)
        for step in (1, 2)
    )
    counts = torch.bincount(torch.cat(classes), minlength=3).double()
    assert ((counts - 600) ** 2 / 600).sum() < 13.8  # the 99.9 % point for 2 degrees of freedom
    assert (
        sum(torch.equal(y, batch.y_labelled) for y, (batch, _) in zip(classes, seen, strict=True))
        < 3
    )
    # the buffer's slots have classes
    assert torch.equal(trainer.chains.sampler.kept().y, torch.arange(30) // 10)


def test_marginal_chains_have_no_classes(make_trainer):
    trainer = make_trainer()
    watched = Watched(trainer)
    trainer.iterate()
    assert [y for _, y, *_ in watched.calls] == [None] * 3


def test_the_model_s_mode_while_sampling_is_the_recipe_s(make_trainer):
    for mode in ("eval", "train"):
        trainer = make_trainer(**{"chains.mode": mode})
        evaluate, modes = trainer.functions.grad_energy, []
        trainer.functions.grad_energy = lambda x, y, t=trainer, e=evaluate, m=modes: (
            m.append(t.model.training) or e(x, y)
        )
        trainer.model.watch = lambda batch, negatives, loss, t=trainer, m=modes: (
            m.append(t.model.training) or loss
        )
        trainer.iterate()
        assert modes == [mode == "train"] * 3 + [True]


def test_the_second_pass_of_a_sharpness_aware_step_leaves_running_statistics_alone(
    make_trainer, toy_models
):
    class Normed(toy_models["classifier"]):
        def __init__(self, net):
            super().__init__(nn.Sequential(net[0], nn.BatchNorm1d(16, momentum=0.9), net[1]))

    trainer, seen = make_trainer(Normed, **{"optimizer.sharpness": 2.0}), []
    trainer.model.watch = lambda batch, negatives, loss: (
        seen.append(batch.x_labelled.flatten(1)) or loss
    )
    trainer.iterate()
    norm = trainer.model.net[1]
    assert len(seen) == 2
    torch.testing.assert_close(norm.running_mean, 0.9 * seen[0].mean(0))
    torch.testing.assert_close(norm.running_var, 0.1 + 0.9 * seen[0].var(0))
    assert int(norm.num_batches_tracked) == 1


def test_the_penalty_is_the_mean_square_of_both_energies(make_trainer):
    trainer, seen = make_trainer(energy_l2=0.25), []
    trainer.model.watch = lambda batch, negatives, loss: seen.append(loss) or loss
    values = trainer.iterate()
    (loss,) = seen
    squares = loss.energies.data.square().mean() + loss.energies.samples.square().mean()
    assert float(values["loss"]) == pytest.approx((loss.total + 0.25 * squares).item(), rel=1e-6)
    assert float(values["highest_sample"]) == loss.energies.samples.max().item()


def test_a_model_that_keeps_its_energies_to_itself_is_trained_all_the_same(make_trainer):
    trainer = make_trainer(energy_l2=0.25)
    trainer.model.watch = lambda batch, negatives, loss: Loss(loss.total, loss.parts)
    assert "highest_sample" not in trainer.iterate()


def test_each_intervention_begins_other_randomness_and_none_the_same(make_trainer):
    def first(seeds):
        trainer = make_trainer()
        if seeds:
            trainer.adjust(Adjustment(seeds=seeds))
        chains = trainer.chains
        return trainer.batches.draw().x, chains.sampler.init(5, generator=chains.generator).x

    found = [first(seeds) for seeds in (0, 1, 2)]
    for kind in (0, 1):
        assert not any(
            torch.equal(found[a][kind], found[b][kind]) for a, b in ((0, 1), (0, 2), (1, 2))
        )
    assert all(torch.equal(a, b) for a, b in zip(first(1), found[1], strict=True))


def test_a_model_of_nothing_but_a_loss_is_trained(make_trainer):
    """A density model needs neither logits nor energies to be trained without validation images."""

    class Bare(torch.nn.Module):
        chains = "none"

        def __init__(self, net):
            super().__init__()
            self.net = net

        def training_loss(self, batch, negatives):
            return Loss(self.net(batch.x).square().mean(), {})

    trainer = make_trainer(Bare, **{"data.validation": 0})
    first = float(trainer.iterate()["loss"])
    for _ in range(20):
        last = float(trainer.iterate()["loss"])
    assert last < first
    assert trainer.chains.random_starts(1, "float32") is None


def test_optimisers_take_turns_with_parameters_and_settings_of_their_own(make_trainer, toy_models):
    """Against a step of each in plain torch, the second after the first, at a rate that schedule
    and guard lower.
    """
    recipe = {
        "optimizer.name": "sgd",
        "schedule.decay": 0.5,
        "schedule.decay_epochs": "[0.1]",
        "data.shared": "true",
    }
    trainer = make_trainer(toy_models["phased"], **recipe)
    trainer.iterate()
    trainer.adjust(Adjustment(rate=0.1))
    before = {
        name: value.clone().requires_grad_() for name, value in trainer.model.state_dict().items()
    }
    trainer.batches.draw, batch = lambda: batch, trainer.batches.draw()
    row, x, after = trainer.iterate(), batch.x.flatten(1), trainer.model.state_dict()
    weight, bias, mean = before["net.1.weight"], before["net.1.bias"], before["mean.weight"]
    for parameter, loss, rate in (
        (weight, F.cross_entropy(x @ weight.T + bias, batch.y_labelled), 0.01),
        (mean, (mean.T - x).square().mean(), 0.5),
    ):
        (gradient,) = torch.autograd.grad(loss, parameter)
        (name,) = (name for name, value in before.items() if value is parameter)
        torch.testing.assert_close(after[name], parameter.detach() - rate * 0.5 * 0.1 * gradient)
    moved = (x @ after["net.1.weight"].T + after["net.1.bias"]).logsumexp(1).mean()
    torch.testing.assert_close(row["surprise"], moved)
    torch.testing.assert_close(row["mean_loss"], (mean.T - x).square().mean().detach() + moved)
    assert row.keys() == {"loss", "cross_entropy", "mean_loss", "surprise"}


def test_looking_at_random_starts_leaves_the_statistics_of_batch_norm_alone(
    make_trainer, toy_models
):
    class Normed(toy_models["jem"]):
        def __init__(self, net):
            super().__init__(nn.Sequential(net[0], nn.BatchNorm1d(16), net[1]))

    trainer = make_trainer(Normed, **{"chains.mode": "train"})
    trainer.iterate()
    before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    assert trainer.chains.random_starts(1, "float32").isfinite().all()
    assert all(
        torch.equal(value, before[name]) for name, value in trainer.model.state_dict().items()
    )
    assert float(before["net.1.num_batches_tracked"]) == trainer.chains.sampler.steps + 3
