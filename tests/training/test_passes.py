"""Network passes, against a network that counts the images in its own forward."""

import pytest
import torch


class Counting(torch.nn.Sequential):
    """A linear network with batch norm."""

    images = 0

    def __init__(self):
        super().__init__(torch.nn.Flatten(), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 3))

    def forward(self, x):
        self.images += len(x)
        return super().forward(x)


@pytest.mark.parametrize("kind", ["jem", "factored", "classifier", "attacked", "phased"])
@pytest.mark.parametrize(
    "settings",
    [{}, {"data.shared": "true"}, {"data.labelled_batch": 6}, {"optimizer.sharpness": 0.5}],
)
def test_passes_are_those_that_the_network_counts(make_trainer, toy_models, kind, settings):
    class Attacked(toy_models["classifier"]):
        def training_loss(self, batch, negatives):
            for _ in range(2):
                self.logits(batch.x_labelled)
            return super().training_loss(batch, negatives)

    trainer = make_trainer(toy_models.get(kind, Attacked), net=Counting, **settings)
    others = []
    if kind == "phased":
        trainer.model.mean.register_forward_pre_hook(lambda _, given: others.append(len(given[0])))
    trainer.iterate()
    trainer.model.net.images = 0
    others.clear()
    trainer.iterate()
    counted, state = trainer.model.net.images + sum(others), torch.get_rng_state()
    running = trainer.model.net[1].running_mean.clone()
    assert trainer.passes == counted
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(trainer.model.net[1].running_mean, running)


def test_passes_depend_on_the_size_of_a_batch_and_not_on_how_a_layer_is_called(
    make_trainer, toy_models
):
    class Wrapped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = torch.nn.Linear(16, 3)

        def forward(self, x):
            return self.body(input=x.flatten(1))

    class InPairs(toy_models["classifier"]):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.temperature = torch.nn.Parameter(torch.ones(()))

        def training_loss(self, batch, negatives):
            for pair in batch.x_labelled.split(2):
                self.logits(pair[:1])
            return super().training_loss(batch, negatives)

    trainer = make_trainer(InPairs, net=Wrapped)
    trainer.iterate()
    assert trainer.passes == 9 + 5


def test_a_remedy_lengthens_chains_and_their_passes(make_trainer):
    trainer = make_trainer()  # nine chains of 3 steps; the loss has 9 images of each of three kinds
    trainer.iterate()
    before = trainer.passes
    trainer.adjust(trainer.adjustment._replace(steps=2))
    assert (before, trainer.passes) == (9 * 3 + 27, 9 * 6 + 27)
