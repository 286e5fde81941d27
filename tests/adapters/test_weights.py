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


def test_a_prefix_may_hold_a_wrapper_s_name(model, data, tmp_path):
    torch.save({f"module.f.{name}": value for name, value in model.state_dict().items()}, tmp_path / "w.pt")
    x = torch.rand(5, *data.shape)
    assert torch.equal(read(tmp_path / "w.pt", data, "weights:prefix=module.f.").logits(x), model.logits(x))


def test_a_prefix_that_not_all_names_have_is_refused(model, data, tmp_path):
    torch.save(model.state_dict(), tmp_path / "w.pt")
    with pytest.raises(CheckpointError, match=r"begins with 'student\.': net\..* does not\. Choose another prefix"):
        read(tmp_path / "w.pt", data, "weights:prefix=student.")


@pytest.mark.parametrize("of", [lambda model: model, lambda model: model.net], ids=["model", "network"])
@pytest.mark.parametrize(
    ("prefix", "spec", "remedy"),
    [
        ("model.", "weights", "weights:prefix=model."),
        ("a.b.", "weights", "weights:prefix=a.b."),
        ("a.b.", "weights:prefix=a.", "weights:prefix=a.b."),
        ("a.module.b.", "weights:prefix=a.", "weights:prefix=a.module.b."),
        ("model.", "weights:entry=ema", "weights:entry=ema,prefix=model."),
    ],
)
def test_a_prefix_that_alone_is_in_the_way_is_named(of, prefix, spec, remedy, model, data, tmp_path):
    weights = {f"{prefix}{name}": value for name, value in of(model).state_dict().items()}
    torch.save({"ema": weights}, tmp_path / "w.pt")
    with pytest.raises(CheckpointError, match=f"begins with '{prefix}', .* Take it off: `jembench import {remedy}`"):
        read(tmp_path / "w.pt", data, spec)
    x = torch.rand(5, *data.shape)
    assert torch.equal(read(tmp_path / "w.pt", data, remedy).logits(x), model.logits(x))


def test_one_of_several_is_read(model, data, tmp_path):
    average = {name: value / 2 for name, value in model.state_dict().items()}
    torch.save({"model": model.state_dict(), "ema": average}, tmp_path / "w.pt")
    with pytest.raises(CheckpointError, match="holds several state_dicts; those in it: model, ema"):
        read(tmp_path / "w.pt", data)
    assert torch.equal(
        read(tmp_path / "w.pt", data, "weights:entry=ema").state_dict()[min(average)], average[min(average)]
    )


def test_a_network_that_nearly_fits_is_told_in_its_own_names(model, data, tmp_path):
    weights = dict(model.net.state_dict())
    del weights["class_output.bias"]
    torch.save(weights, tmp_path / "w.pt")
    with pytest.raises(CheckpointError, match=r"nothing was imported: net\.class_output\.bias is missing\. Name"):
        read(tmp_path / "w.pt", data)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.int32], ids=str)
def test_numbers_of_another_kind_are_refused(dtype, model, data, tmp_path):
    weights = model.state_dict()
    weights["net.class_output.bias"] = weights["net.class_output.bias"].to(dtype)
    torch.save(weights, tmp_path / "w.pt")
    name = str(dtype).removeprefix("torch.")
    with pytest.raises(CheckpointError, match=f"imported: net.class_output.bias holds {name} instead of float32. Name"):
        read(tmp_path / "w.pt", data)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_other_precisions_fit(dtype, model, data, tmp_path):
    torch.save({name: value.to(dtype) for name, value in model.state_dict().items()}, tmp_path / "w.pt")
    for name, value in read(tmp_path / "w.pt", data).state_dict().items():
        assert torch.equal(value, model.state_dict()[name].to(dtype).float())


def test_weights_of_another_model_are_listed(model, data, tmp_path):
    torch.save(model.state_dict(), tmp_path / "w.pt")
    with pytest.raises(CheckpointError, match=r"do not fit baseline:net=small-8, and nothing was imported: net\."):
        read(tmp_path / "w.pt", data, model="baseline:net=small-8")


def test_the_model_must_be_named(model, data, tmp_path):
    torch.save(model.state_dict(), tmp_path / "w.pt")
    with pytest.raises(SpecError, match=r"does not say which model it is of\. Name it: --model"):
        read(tmp_path / "w.pt", data, model=None)
