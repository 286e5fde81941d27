"""Plain state dictionaries, of a model and of the network within it."""

import pytest
import torch

from jembench import registry
from jembench.adapters.imported import fit_together
from jembench.errors import CheckpointError, SpecError

BASELINE = "baseline:net=small-4"


@pytest.fixture
def model(data):
    torch.manual_seed(7)
    return registry.resolve("models", BASELINE).make(data).eval()


def read(path, data, spec="weights", model=BASELINE):
    found = registry.resolve("importers", spec).make().read(path, data, model)
    return fit_together(found, data, path).eval()


@pytest.mark.parametrize(
    "written",
    [
        lambda model: model.state_dict(),
        lambda model: model.net.state_dict(),
        lambda model: {f"module.{name}": value for name, value in model.state_dict().items()},
        lambda model: {"state_dict": {f"_orig_mod.{name}": value for name, value in model.net.state_dict().items()}},
    ],
    ids=["model", "network", "DataParallel", "compiled network"],
)
def test_the_same_logits_from_however_it_was_written(written, model, data, tmp_path):
    torch.save(written(model), tmp_path / "w.pt")
    x = torch.rand(5, *data.shape)
    assert torch.equal(read(tmp_path / "w.pt", data).logits(x), model.logits(x))


def test_a_prefix_of_ones_own(model, data, tmp_path):
    torch.save({f"student.{name}": value for name, value in model.net.state_dict().items()}, tmp_path / "w.pt")
    x = torch.rand(5, *data.shape)
    assert torch.equal(read(tmp_path / "w.pt", data, "weights:prefix=student.").logits(x), model.logits(x))


def test_weights_of_another_model_are_listed(model, data, tmp_path):
    torch.save(model.state_dict(), tmp_path / "w.pt")
    with pytest.raises(CheckpointError, match=r"do not fit baseline:net=small-8, and nothing was imported: net\."):
        read(tmp_path / "w.pt", data, model="baseline:net=small-8")


def test_the_model_must_be_named(model, data, tmp_path):
    torch.save(model.state_dict(), tmp_path / "w.pt")
    with pytest.raises(SpecError, match=r"does not say which model it is of\. Name it: --model"):
        read(tmp_path / "w.pt", data, model=None)
