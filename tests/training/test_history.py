import csv
import re
from pathlib import Path

import pytest
import torch

from jembench.catalog import registry
from jembench.experiment import recipe as recipes
from jembench.training.choice import SelectedWeights
from jembench.training.fit import train
from jembench.training.loop import Trainer

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "watch.md"

MODELS = (
    "jem-factored",
    "igebm:conditional=false",
    "igebm",
    "adversarial:steps=1",
    "eb-jdat:steps=1",
    "dat:clean=1,steps=1",
    "energy-finetuned",
    "trades:steps=1",
    "ratio:steps=1,outlier_steps=1",
    "glow:hidden=8,levels=1,steps=1",
    "residual-flow:blocks=1,hidden=8,levels=1",
    "diffusion:net=mlp-8",
    "vera:net=small-1,width=2,latent=2,particles=2",
)


def documented():
    """The columns of the guide, with their units."""
    _, table = GUIDE.read_text().split("## history.csv")
    return dict(re.findall(r"^\| `(\w+)` \| ([^|]*?) ?\|", table, re.MULTILINE))


def columns(path):
    with path.open() as stream:
        return next(csv.reader(stream))


@pytest.fixture(scope="module")
def digits():
    return registry.resolve("datasets", "digits").make()


@pytest.fixture(scope="module")
def logged(digits):
    found = set()
    for spec in MODELS:
        settings = ["batch_size=8", "chains.sampler=pcd:buffer=100,steps=1"]
        settings += ["chains.conditional=true"] * (spec == "igebm")
        model = registry.resolve("models", spec).make(digits.spec)
        tiny = recipes.load("digits", settings)
        trainer = Trainer(
            model, digits.spec, digits.split("train"), tiny, seed=0, device=torch.device("cpu")
        )
        found |= trainer.iterate().keys()
    return found


def test_the_guide_lists_every_column_in_its_order(make_trainer, tmp_path, logged):
    train(
        make_trainer(**{"guard.mode": "watch"}),
        tmp_path,
        select=lambda: SelectedWeights("LABEL", 1.0, "higher"),
    )
    written = columns(tmp_path / "history.csv")
    assert {*written, *logged} == documented().keys()
    assert written == [name for name in documented() if name in written]
