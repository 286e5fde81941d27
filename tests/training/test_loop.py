"""What a training iteration does, and that nothing of it is forgotten."""

import pytest
import torch

from jembench.errors import CheckpointError
from jembench.training.loop import load_weights, logits_of


@pytest.mark.parametrize("name", ["jem", "factored", "classifier"])
def test_a_loaded_state_goes_on_bit_for_bit(name, make_trainer, toy_models):
    straight, stopped, resumed = (make_trainer(toy_models[name]) for _ in range(3))
    expected = [straight.iterate() for _ in range(14)][7:]
    for _ in range(7):  # in the middle of an epoch of 9 iterations
        stopped.iterate()
    resumed.load_state_dict(stopped.state_dict())
    got = [resumed.iterate() for _ in range(7)]
    assert [{k: float(v) for k, v in row.items()} for row in got] == [
        {k: float(v) for k, v in row.items()} for row in expected
    ]
    for name, value in straight.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name])


def test_the_seed_decides_everything(make_trainer):
    first, same, other = make_trainer(), make_trainer(), make_trainer(seed=1)
    losses = [[float(trainer.iterate()["loss"]) for _ in range(5)] for trainer in (first, same, other)]
    assert losses[0] == losses[1]
    assert losses[0] != losses[2]


def test_training_draws_nothing_from_the_global_generator(make_trainer):
    trainer = make_trainer()
    before = torch.get_rng_state()
    trainer.iterate()
    assert torch.equal(before, torch.get_rng_state())


def test_validation_changes_nothing(make_trainer):
    plain, looked_at = make_trainer(), make_trainer()
    for _ in range(3):
        plain.iterate()
        looked_at.iterate()
        looked_at.validate()
        looked_at.sampler.kept()
    assert float(plain.iterate()["loss"]) == float(looked_at.iterate()["loss"])


def test_conditional_chains_are_of_the_batch_s_own_classes(make_trainer, toy_models):
    trainer = make_trainer(toy_models["factored"])
    seen = []
    loss = trainer.model.training_loss
    trainer.model.training_loss = lambda batch, negatives: seen.append((batch, negatives)) or loss(batch, negatives)
    trainer.iterate()
    ((batch, negatives),) = seen
    assert torch.equal(batch.y_labelled, negatives.y)
    assert not negatives.x.requires_grad


def test_the_two_batches_are_independent_draws(make_trainer):
    batch = make_trainer(**{"data.noise": 0})._batch()
    assert not torch.equal(batch.x, batch.x_labelled)


def test_validation_images_are_not_trained_on(make_trainer):
    trainer = make_trainer()
    assert len(trainer.source) == 81
    assert len(trainer.validation.images) == 9
    assert trainer.iterations_per_epoch == 9
    assert trainer.iterations == 36


def test_the_learning_rate_warms_up_and_decays(make_trainer):
    trainer = make_trainer(
        **{"schedule.warmup_iterations": 4, "schedule.decay": 0.5, "schedule.decay_epochs": "[1, 2]"}
    )
    rates = []
    for iteration in range(36):
        trainer.iteration = iteration
        rates.append(trainer.learning_rate)
    assert rates[:4] == pytest.approx([0.0025, 0.005, 0.0075, 0.01])
    assert rates[8:10] == pytest.approx([0.01, 0.005])
    assert rates[17:19] == pytest.approx([0.005, 0.0025])


def test_weights_of_another_model_are_refused_and_nothing_is_loaded(make_trainer):
    model = make_trainer().model
    before = {name: value.clone() for name, value in model.state_dict().items()}
    foreign = {"net.1.weight": torch.zeros(7, 16), "head.bias": torch.zeros(3)}
    with pytest.raises(CheckpointError) as error:
        load_weights(model, foreign)
    for words in ("net.1.bias is missing", "head.bias is unknown", "net.1.weight is (7, 16) instead of (3, 16)"):
        assert words in str(error.value)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_logits_do_not_depend_on_the_batch_size(make_trainer):
    trainer = make_trainer()
    images = trainer.validation.images
    whole = logits_of(trainer.model, images, trainer.data, trainer.device)
    assert whole.shape == (9, 3)
    pieces = logits_of(trainer.model, images, trainer.data, trainer.device, batch_size=2)
    assert torch.allclose(whole, pieces, atol=1e-6)
