"""Plain state dictionaries, of a model and of the network within it."""

import pytest
import torch

from jembench.catalog import registry
from jembench.errors import CheckpointError, SpecError
from jembench.interfaces import Import
from jembench.models.importing import fit_together

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
        lambda model: {f"_orig_mod.module.{name}": value for name, value in model.state_dict().items()},
        lambda model: {"net": model.net.state_dict(), "epoch": 3},
    ],
    ids=["model", "network", "DataParallel", "compiled network", "compiled DataParallel", "named net"],
)
def test_the_same_logits_from_however_it_was_written(written, model, data, tmp_path):
    torch.save(written(model), tmp_path / "w.pt")
    x = torch.rand(5, *data.shape)
    assert torch.equal(read(tmp_path / "w.pt", data).logits(x), model.logits(x))


@pytest.mark.parametrize(
    ("before", "after"), [("", ""), ("module.", ""), ("", "_orig_mod."), ("_orig_mod.", "module.")]
)
def test_a_prefix_of_ones_own_among_wrappers(before, after, model, data, tmp_path):
    names = {name: f"{before}student.{after}{name}" for name in model.net.state_dict()}
    torch.save({names[name]: value for name, value in model.net.state_dict().items()}, tmp_path / "w.pt")
    x = torch.rand(5, *data.shape)
    assert torch.equal(read(tmp_path / "w.pt", data, "weights:prefix=student.").logits(x), model.logits(x))


def test_a_prefix_that_no_name_has_is_refused(model, data, tmp_path):
    torch.save(model.state_dict(), tmp_path / "w.pt")
    told = r"No name in .* 'student\.'; one of them is net\..*\. Choose another prefix"
    with pytest.raises(CheckpointError, match=told):
        read(tmp_path / "w.pt", data, "weights:prefix=student.")


def prefixed(prefix, weights):
    return {f"{prefix}{name}": value for name, value in weights.items()}


OTHERS = {"criterion.weight": torch.ones(3), "modelled": torch.ones(1)}


def test_names_without_the_prefix_are_left_out_and_told(model, data, tmp_path):
    torch.save(prefixed("module.model.", model.state_dict()) | prefixed("module.", OTHERS), tmp_path / "w.pt")
    found = registry.resolve("importers", "weights:prefix=model.").make().read(tmp_path / "w.pt", data, BASELINE)
    x = torch.rand(5, *data.shape)
    assert torch.equal(fit_together(found, data, tmp_path / "w.pt").eval().logits(x), model.logits(x))
    assert found.unused == tuple(OTHERS)


def test_a_network_that_nearly_fits_is_told_in_its_own_names(model, data, tmp_path):
    weights = dict(model.net.state_dict())
    del weights["class_output.bias"]
    torch.save(weights, tmp_path / "w.pt")
    with pytest.raises(CheckpointError, match=r"nothing was imported: net\.class_output\.bias is missing\. Name"):
        read(tmp_path / "w.pt", data)


def test_the_model_must_be_named(model, data, tmp_path):
    torch.save(model.state_dict(), tmp_path / "w.pt")
    with pytest.raises(SpecError, match=r"does not say which model it is of\. Name it: --model"):
        read(tmp_path / "w.pt", data, model=None)


def test_everything_that_does_not_fit_is_listed(model, data, tmp_path):
    weights = model.state_dict()
    names = list(weights)
    weights["more"] = torch.ones(1)
    weights[names[0]] = torch.ones(1, 2)
    weights[names[1]] = torch.full_like(weights[names[1]], torch.nan)
    del weights[names[2]]
    with pytest.raises(CheckpointError, match="nothing was imported") as caught:
        fit_together(Import(model=BASELINE, weights=weights), data, tmp_path / "x.pt")
    for part in ("more is unknown", f"{names[0]} is (1, 2) instead of", f"{names[2]} is missing", "is not finite"):
        assert part in str(caught.value)


def test_a_number_that_is_too_large_for_the_model_s_precision_is_not_finite(model, data, tmp_path):
    weights = model.state_dict()
    name = min(weights)
    weights[name] = weights[name].double()
    weights[name].view(-1)[0] = 1e300
    with pytest.raises(CheckpointError, match=f"nothing was imported: {name} is not finite"):
        fit_together(Import(model=BASELINE, weights=weights), data, tmp_path / "x.pt")
