"""Plain state dictionaries, of a model and of the network within it."""

import dataclasses
import warnings

import pytest
import torch

from jembench.catalog import registry
from jembench.errors import CheckpointError, Remark, SpecError
from jembench.interfaces import DataSpec, Import
from jembench.models.importing import check_classes, fit_together, fitting
from jembench.models.objective import as_model
from jembench.store.checkpoint import misfits

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
        lambda model: {
            "state_dict": {
                f"_orig_mod.{name}": value for name, value in model.net.state_dict().items()
            }
        },
        lambda model: {
            f"_orig_mod.module.{name}": value for name, value in model.state_dict().items()
        },
        lambda model: {"net": model.net.state_dict(), "epoch": 3},
    ],
    ids=[
        "model",
        "network",
        "DataParallel",
        "compiled network",
        "compiled DataParallel",
        "named net",
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
    torch.save(
        {names[name]: value for name, value in model.net.state_dict().items()}, tmp_path / "w.pt"
    )
    x = torch.rand(5, *data.shape)
    assert torch.equal(
        read(tmp_path / "w.pt", data, "weights:prefix=student.").logits(x), model.logits(x)
    )


def test_a_prefix_that_no_name_has_is_refused(model, data, tmp_path):
    torch.save(model.state_dict(), tmp_path / "w.pt")
    told = r"No name in .* 'student\.'; one of them is net\..*\. Choose another prefix"
    with pytest.raises(CheckpointError, match=told):
        read(tmp_path / "w.pt", data, "weights:prefix=student.")


def prefixed(prefix, weights):
    return {f"{prefix}{name}": value for name, value in weights.items()}


OTHERS = {"criterion.weight": torch.ones(3), "modelled": torch.ones(1)}


def test_names_without_the_prefix_are_left_out_and_told(model, data, tmp_path):
    torch.save(
        prefixed("module.model.", model.state_dict()) | prefixed("module.", OTHERS),
        tmp_path / "w.pt",
    )
    found = (
        registry.resolve("importers", "weights:prefix=model.")
        .make()
        .read(tmp_path / "w.pt", data, BASELINE)
    )
    x = torch.rand(5, *data.shape)
    assert torch.equal(
        fit_together(found, data, tmp_path / "w.pt").eval().logits(x), model.logits(x)
    )
    assert found.unused == tuple(OTHERS)


def test_a_network_that_nearly_fits_is_told_in_its_own_names(model, data, tmp_path):
    weights = dict(model.net.state_dict())
    del weights["class_output.bias"]
    torch.save(weights, tmp_path / "w.pt")
    with pytest.raises(
        CheckpointError, match=r"nothing was imported: net\.class_output\.bias is missing\. Name"
    ):
        read(tmp_path / "w.pt", data)


def test_the_model_must_be_named(model, data, tmp_path):
    torch.save(model.state_dict(), tmp_path / "w.pt")
    with pytest.raises(SpecError, match=r"whose weights it holds\. Name the model: --model"):
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
    for part in (
        "more is unknown",
        f"{names[0]} is (1, 2) instead of",
        f"{names[2]} is missing",
        "is not finite",
    ):
        assert part in str(caught.value)


def test_a_number_that_is_too_large_for_the_model_s_precision_is_not_finite(model, data, tmp_path):
    weights = model.state_dict()
    name = min(weights)
    weights[name] = weights[name].double()
    weights[name].view(-1)[0] = 1e300
    with pytest.raises(CheckpointError, match=f"nothing was imported: {name} is not finite"):
        fit_together(Import(model=BASELINE, weights=weights), data, tmp_path / "x.pt")


class Small(torch.nn.Module):
    """A network with batch norm and, as ``wrap`` makes it, a reparametrised layer."""

    def __init__(self, data, wrap):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Flatten(),
            wrap(torch.nn.Linear(data.dimensions, 8)),
            torch.nn.BatchNorm1d(8),
            torch.nn.Linear(8, data.num_classes),
        )

    def forward(self, x):
        return self.layers(x)


def plain(layer):
    return layer


def old_norm(layer):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return torch.nn.utils.weight_norm(layer)


new_norm = torch.nn.utils.parametrizations.weight_norm
old_spectral = torch.nn.utils.spectral_norm
new_spectral = torch.nn.utils.parametrizations.spectral_norm


def eval_logits(net, x):
    with torch.no_grad():
        return net.eval()(x)


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        (old_norm, old_norm),
        (old_norm, new_norm),
        (new_norm, old_norm),
        (old_norm, plain),
        (old_spectral, new_spectral),
        (new_spectral, old_spectral),
    ],
)
def test_reparametrised_layers_of_either_age(written, wanted, data):
    torch.manual_seed(1)
    trained, net = Small(data, written), Small(data, wanted)
    trained(torch.rand(20, *data.shape))  # moves norms and running statistics
    with torch.no_grad():
        for name, value in trained.named_parameters():
            if not name.endswith(("weight_v", "original1")):
                value.mul_(1.5)
    weights = fitting(net, trained.state_dict())
    assert misfits(net, weights) == []
    net.load_state_dict(weights)
    x = torch.rand(5, *data.shape)
    torch.testing.assert_close(eval_logits(net, x), eval_logits(trained, x))


def test_batches_need_not_have_been_counted(data):
    net = Small(data, plain)
    counted = net.state_dict()
    older = {name: value for name, value in counted.items() if "num_batches" not in name}
    assert fitting(net, older).keys() == counted.keys()
    assert misfits(net, fitting(net, older)) == []


@pytest.mark.parametrize("prefix", ["model.", "student.", "model.net.", "model.module."])
def test_the_one_prefix_that_fits_is_found(prefix, model, data, tmp_path):
    weights = prefixed(prefix, model.net.state_dict()) | {"criterion.weight": torch.ones(3)}
    torch.save({"state_dict": weights, "epoch": 3}, tmp_path / "w.pt")
    imported = (
        registry.resolve("importers", "weights").make().read(tmp_path / "w.pt", data, BASELINE)
    )
    assert imported.unused == ("criterion.weight",)
    x = torch.rand(5, *data.shape)
    fitted = fit_together(imported, data, tmp_path / "w.pt").eval()
    assert torch.equal(fitted.logits(x), model.logits(x))


def test_an_average_beside_the_weights_is_a_choice(model, data, tmp_path):
    own = model.net.state_dict()
    torch.save(prefixed("model.", own) | prefixed("ema.", own), tmp_path / "w.pt")
    with pytest.raises(
        CheckpointError, match=r"prefixes model\., ema\.\. Name one: .*prefix=ema\."
    ):
        read(tmp_path / "w.pt", data)
    read(tmp_path / "w.pt", data, "weights:prefix=ema.")


def test_half_precision_in_the_file_and_in_the_model(model, data, tmp_path):
    halves = {name: value.half() for name, value in model.state_dict().items()}
    torch.save(halves, tmp_path / "w.pt")
    loaded = read(tmp_path / "w.pt", data)
    assert {value.dtype for value in loaded.state_dict().values()} == {torch.float32}
    net = Small(data, plain).half()
    with pytest.warns(
        Remark, match="The weights of mine are float16, and are converted to float32"
    ):
        made = as_model(net, data, "mine")
    assert made.eval().logits(torch.rand(2, *data.shape)).dtype == torch.float32


NAMED = DataSpec(
    name="set", shape=(1, 8, 8), num_classes=3, class_names=("apple", "sea_lion", "zebra")
)
WRONG = ["zebra", "Apple", "sea lion"]


@pytest.mark.parametrize(
    "named",
    [
        {"classes": WRONG},
        {"class_names": tuple(WRONG)},
        {"class_to_idx": {"zebra": 0, "sea lion": 2, "apple": 1}},
        {"id2label": {str(place): name for place, name in enumerate(WRONG)}},
        {"idx_to_class": dict(enumerate(WRONG))},
    ],
)
def test_classes_in_another_order_are_refused(named, tmp_path):
    with pytest.raises(CheckpointError, match="has the same classes in the order apple, sea_lion"):
        check_classes({"state_dict": {}, **named}, NAMED, tmp_path / "w.pt")


@pytest.mark.parametrize(
    "named",
    [
        {},
        {"classes": ["APPLE", "sea-lion", "zebra"]},
        {"classes": ["a", "b", "c"]},
        {"names": [1, 2]},
    ],
)
def test_classes_in_this_order_or_of_other_names_pass(named, tmp_path):
    check_classes({"state_dict": {}, **named}, NAMED, tmp_path / "w.pt")


def test_the_importer_checks_the_classes(data, model, tmp_path):
    torch.save({"state_dict": model.state_dict(), "classes": ["b", "a"]}, tmp_path / "w.pt")
    named = dataclasses.replace(data, class_names=("a", "b"))
    with pytest.raises(CheckpointError, match="names its outputs b, a"):
        read(tmp_path / "w.pt", named)
