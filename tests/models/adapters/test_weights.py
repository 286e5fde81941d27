"""Plain state dictionaries, of a model and of the network within it."""

import re

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

from jembench.catalog import registry
from jembench.errors import CheckpointError, SpecError
from jembench.models.adapters.imported import fit_together

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
        lambda model: AveragedModel(model).state_dict(),
        lambda model: AveragedModel(nn.DataParallel(model.net)).state_dict(),
        lambda model: nn.DataParallel(AveragedModel(model)).state_dict(),
    ],
    ids=[
        "model",
        "network",
        "DataParallel",
        "compiled network",
        "compiled DataParallel",
        "named net",
        "average",
        "average of DataParallel",
        "DataParallel of an average",
    ],
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


def test_a_prefix_that_no_name_has_is_refused(model, data, tmp_path):
    torch.save(model.state_dict(), tmp_path / "w.pt")
    told = r"No name in .* 'student\.'; one of them is net\..*\. Choose another prefix"
    with pytest.raises(CheckpointError, match=told):
        read(tmp_path / "w.pt", data, "weights:prefix=student.")


def prefixed(prefix, weights):
    return {f"{prefix}{name}": value for name, value in weights.items()}


OTHERS = {"criterion.weight": torch.ones(3), "modelled": torch.ones(1)}


@pytest.mark.parametrize("of", [lambda model: model, lambda model: model.net], ids=["model", "network"])
@pytest.mark.parametrize(
    ("before", "after"),
    [("", ""), ("module.", ""), ("", "_orig_mod."), ("_orig_mod.", "module.")],
    ids=["plain", "wrapped outside", "wrapped inside", "both"],
)
def test_names_without_the_prefix_are_left_out_and_told(before, after, of, model, data, tmp_path):
    others = prefixed(before, OTHERS)
    torch.save(prefixed(f"{before}model.{after}", of(model).state_dict()) | others, tmp_path / "w.pt")
    found = registry.resolve("importers", "weights:prefix=model.").make().read(tmp_path / "w.pt", data, BASELINE)
    x = torch.rand(5, *data.shape)
    assert torch.equal(fit_together(found, data, tmp_path / "w.pt").eval().logits(x), model.logits(x))
    assert found.unused == tuple(OTHERS)


def test_an_average_within_another_module_is_read_by_its_prefix(model, data, tmp_path):
    weights = prefixed("model.", model.state_dict()) | prefixed("ema.", AveragedModel(model).state_dict())
    torch.save(weights, tmp_path / "w.pt")
    x = torch.rand(5, *data.shape)
    for prefix in ("ema.", "ema.module."):
        assert torch.equal(read(tmp_path / "w.pt", data, f"weights:prefix={prefix}").logits(x), model.logits(x))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda weights: weights.pop("model.net.class_output.bias"), r"net\.class_output\.bias is missing\. Name"),
        (lambda weights: weights.update({"model.net.more": torch.ones(1)}), r"net\.more is unknown\. Name"),
    ],
    ids=["one missing", "one more"],
)
def test_what_begins_with_the_prefix_must_fit_whole(change, text, model, data, tmp_path):
    weights = prefixed("model.", model.state_dict()) | OTHERS
    change(weights)
    torch.save(weights, tmp_path / "w.pt")
    with pytest.raises(CheckpointError, match=f"nothing was imported: {text}"):
        read(tmp_path / "w.pt", data, "weights:prefix=model.")


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
    torch.save({"ema": prefixed(prefix, of(model).state_dict())}, tmp_path / "w.pt")
    told = f"every name of {BASELINE} behind '{prefix}'. Take that off: `jembench import {remedy}`."
    with pytest.raises(CheckpointError, match=re.escape(told)):
        read(tmp_path / "w.pt", data, spec)
    x = torch.rand(5, *data.shape)
    assert torch.equal(read(tmp_path / "w.pt", data, remedy).logits(x), model.logits(x))


@pytest.mark.parametrize("spec", ["weights", "weights:prefix=mod"])
def test_every_prefix_that_is_in_the_way_is_named(spec, model, data, tmp_path):
    average = {name: value / 2 for name, value in model.state_dict().items()}
    torch.save(prefixed("model.", model.state_dict()) | prefixed("ema_model.", average) | OTHERS, tmp_path / "w.pt")
    with pytest.raises(CheckpointError) as caught:
        read(tmp_path / "w.pt", data, spec)
    assert str(caught.value) == (
        f"{tmp_path / 'w.pt'} holds every name of {BASELINE} behind 'model.' and behind 'ema_model.'. Take that off: "
        "`jembench import weights:prefix=model.` or `jembench import weights:prefix=ema_model.`. Names that begin "
        "otherwise are then left out."
    )
    found = read(tmp_path / "w.pt", data, "weights:prefix=ema_model.").state_dict()
    assert all(torch.equal(found[name], value) for name, value in average.items())


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
