"""Optimisers, schedules, augmentations and starts of chains: registered ones and those of a third
party.
"""

from pathlib import Path

import pytest
import torch

from jembench.catalog import trust
from jembench.errors import SpecError
from jembench.experiment import recipe as recipes
from jembench.experiment.plan import plan_fit
from jembench.experiment.recipe import Optimizer
from jembench.training.optimizers import make_optimizer

EXAMPLE = Path(__file__).parents[1] / "example_plugin"


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLE)


def optimizer(name, **options):
    return make_optimizer(
        torch.nn.Linear(2, 1).parameters(), Optimizer(name=name, learning_rate=0.1, **options)
    )


def test_an_optimizer_of_pytorch_takes_the_recipe_s_constants_and_options_of_its_own():
    made = optimizer("torch.optim:AdamW:amsgrad=true,eps=1e-6", weight_decay=0.3, betas=(0.5, 0.9))
    assert type(made) is torch.optim.AdamW
    wanted = {
        "lr": 0.1,
        "betas": (0.5, 0.9),
        "weight_decay": 0.3,
        "amsgrad": True,
        "eps": 1e-6,
        "fused": True,
    }
    assert made.defaults.items() >= wanted.items()
    assert type(optimizer("torch.optim:Rprop")) is torch.optim.Rprop  # which has no fused step


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "torch.optim:AdamW:amsgrd=true",
            r"refuses its options: .* unexpected keyword argument 'amsgrd'",
        ),
        (
            "torch.optim:AdamW:eps=-1",
            r"torch\.optim:AdamW:eps=-1 refuses its options: Invalid epsilon",
        ),
        ("adamw", r"no optimizer named 'adamw'\. Nearest: adam\..*jembench list optimizers"),
    ],
)
def test_a_wrong_optimizer_is_refused(name, text):
    with pytest.raises(SpecError, match=text):
        optimizer(name)


def test_a_training_of_a_third_party_s_parts(example, make_trainer):
    trainer = make_trainer(
        **{
            "optimizer.name": "jembench_example:sign_sgd",
            "schedule.name": "jembench_example:halving:every=0.5",
            "data.augmentation": "jembench_example:erase:side=4",
            "data.noise": 0,
            "chains.sampler": '"pcd:steps=1,buffer=30,reinit=1,noise=0,step_size=1e-9,'
            'start=jembench_example:grey"',
        }
    )
    rates = [trainer.learning_rate()]
    before = [weight.detach().clone() for weight in trainer.model.parameters()]
    batch = trainer.batches.draw()
    assert (batch.x == trainer.data.bounds[0]).all()  # the square is the whole image
    negatives = trainer.chains.negatives(batch, trainer.functions, 1, str)
    assert torch.allclose(negatives.x, torch.tensor(sum(trainer.data.bounds) / 2))
    for _ in range(trainer.batches.per_epoch):
        trainer.iterate()
        rates.append(trainer.learning_rate())
    assert rates[-1] == rates[0] / 4
    moved = [
        (weight - old).abs().max()
        for weight, old in zip(trainer.model.parameters(), before, strict=True)
    ]
    assert all(0 < move <= sum(rates) + 1e-6 for move in moved)


def test_only_the_user_names_code_and_its_content_is_part_of_the_identity(
    example, tmp_path, monkeypatch
):
    (tmp_path / "own_parts.py").write_text(
        "def flat():\n    return lambda i, per_epoch, total: 1.0\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    text = (
        Path(recipes.__file__).parents[2] / "benchmarks/jembench_suites/recipes/digits.toml"
    ).read_text()
    file = tmp_path / "mine.toml"
    file.write_text(text.replace("[schedule]", '[schedule]\nname = "own_parts:flat"'))
    with pytest.raises(
        SpecError, match="names own_parts:flat, which runs code that you did not name"
    ):
        recipes.load(str(file))
    with trust.command(["schedule.name=own_parts:flat"]):
        named = plan_fit("jem:net=small-2", "digits", "digits", ["schedule.name=own_parts:flat"])
        assert named.identity["recipe"]["code"].keys() == {"own_parts:flat"}
        assert "own_parts:flat" in [component.target for component in named.components]
    plain = plan_fit("jem:net=small-2", "digits", "digits")
    assert "code" not in plain.identity["recipe"]
    assert plain.identity["recipe"]["schedule"]["name"] == ""
