"""The importer: a synthetic dump of every published variable, and dumps that do not fit."""

import pickle

import numpy as np
import pytest
import torch

from jembench.errors import CheckpointError
from jembench.interfaces import DataSpec
from jembench_igebm import igebm
from jembench_igebm.importer import PublishedCheckpoint, load_npz

CIFAR = DataSpec(name="cifar10", shape=(3, 32, 32), num_classes=10)
WIDTH = 4
SIX = {"optim": (1, 1), "1": (1, 1), "2": (1, 2), "3": (2, 2), "4": (2, 2), "5": (2, 2)}
NINE = {"6": (2, 4), "7": (4, 4), "8": (4, 4)}
BLOCKS = {"base": SIX, "large": SIX | {"2": (1, 1), "3": (1, 2)} | NINE}
"""In-channels and out-channels of each block, as multiples of the width."""


def convolution(scope, channels_in, channels_out, classes):
    rows = () if classes == 1 else (classes,)
    return {
        f"context_0/{scope}/cweight": (3, 3, channels_in, channels_out),
        f"context_0/{scope}/c_u": (1, channels_out),
        f"context_0/{scope}/b": (channels_out,),
        f"context_0/{scope}/g": (*rows, channels_out),
        f"context_0/{scope}/gb": (*rows, channels_in),
        f"context_0/{scope}/cb": (channels_in,),
    }


def shapes(net, classes):
    """Written out from the published code, apart from the importer's own table."""
    found = convolution("c1_pre", 3, WIDTH, 1)
    for name, (before, after) in BLOCKS[net].items():
        found |= convolution(f"res_{name}_res_c1", before * WIDTH, after * WIDTH, classes)
        found |= convolution(f"res_{name}_res_c2", after * WIDTH, after * WIDTH, classes)
        if before != after:
            found |= convolution(f"res_{name}_res_adaptive", before * WIDTH, after * WIDTH, classes)
    return found | {"context_0/fc5/wweight": (after * WIDTH, 1), "context_0/fc5/b": (1,)}


def arrays(net="base", classes=10):
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes(net, classes).items()}


def make(net="base", *, conditional=True):
    torch.manual_seed(0)
    return igebm(CIFAR, net=net, width=WIDTH, conditional=conditional).eval()


def dump(path, values):
    np.savez(path / "dump.npz", **values)
    return path / "dump.npz"


def conv_nhwc(x, kernel, u):
    """A 3 x 3 convolution in the layout of TensorFlow, one output pixel after the other; the kernel / sigma."""
    matrix = kernel.reshape(-1, kernel.shape[-1])
    v = u @ matrix.T
    v /= np.linalg.norm(v)
    after = v @ matrix
    after /= np.linalg.norm(after)
    sigma = (v @ matrix @ after.T).item()
    padded = np.pad(x, ((1, 1), (1, 1), (0, 0)))
    out = [
        [np.tensordot(padded[i : i + 3, j : j + 3], kernel, 3) for j in range(x.shape[1])] for i in range(x.shape[0])
    ]
    return np.array(out), sigma


def leaky(x):
    return np.where(x > 0, x, 0.2 * x)


def published_energy(values, x, label=None):
    """The published ``base`` network in numpy; x (H, W, C) in [0, 1]."""

    def conv(scope, x, bias=False, at_most=False):
        get = {name: values[f"context_0/{scope}/{name}"].astype(np.float64) for name in ("cweight", "c_u", "gb")}
        if bias:
            x = x + (get["gb"] if label is None else get["gb"][label])
        out, sigma = conv_nhwc(x, get["cweight"], get["c_u"])
        return out / sigma * (min(sigma, 1) if at_most else 1)

    x = leaky(conv("c1_pre", x))
    for name in BLOCKS["base"]:
        inner = conv(f"res_{name}_res_c2", leaky(conv(f"res_{name}_res_c1", x, bias=True)), bias=True, at_most=True)
        gain = values[f"context_0/res_{name}_res_c2/g"]
        inner *= gain if label is None else gain[label] + values[f"context_0/res_{name}_res_c2/cb"]
        x = inner + (conv("res_2_res_adaptive", x) if name == "2" else x)
        if name in ("optim", "2", "4"):
            height, width, channels = x.shape
            x = x.reshape(height // 2, 2, width // 2, 2, channels).mean((1, 3))
        x = leaky(x)
    return (np.maximum(x, 0).sum((0, 1)) @ values["context_0/fc5/wweight"] + values["context_0/fc5/b"]).item()


@torch.no_grad()
@pytest.mark.parametrize("classes", [10, 1], ids=["conditional", "unconditional"])
def test_the_model_gives_the_energies_of_the_published_network(tmp_path, classes):
    values = arrays(classes=classes)
    model = make(conditional=classes > 1)
    load_npz(dump(tmp_path, values), model)
    x = torch.rand(1, 3, 32, 32) * 2 - 1
    unit = ((x[0].permute(1, 2, 0) + 1) / 2).double().numpy()
    label = 7 if classes > 1 else None
    energy = model.energy(x, None if label is None else torch.tensor([label]))
    assert float(energy) == pytest.approx(published_energy(values, unit, label), rel=1e-4)


def test_the_report_says_what_was_read_and_what_never_is(tmp_path):
    values = arrays()
    idle = {
        "context_0/fc_dense/wweight": np.ones((128, 16), np.float32),
        "context_0/atten/gamma": np.zeros(1, np.float32),
        "context_0/fc5/b/Adam_1": np.ones(1, np.float32),
        "beta1_power": np.float32(0),
    }
    report = load_npz(dump(tmp_path, values | idle), make())
    assert set(report.unused) >= set(idle)
    assert "context_0/c1_pre/g" in report.unused
    used = set(values) - set(report.unused)
    assert report.variables == len(used)
    assert report.parameters == sum(values[name].size for name in used)
    assert {name.rpartition("/")[2] for name in report.unused if name in values} == {"b", "g", "gb", "cb"}


def test_what_is_never_read_may_be_left_out(tmp_path):
    values = arrays("large", 1)
    report = load_npz(dump(tmp_path, values), make("large", conditional=False))
    slim = {name: value for name, value in values.items() if name not in report.unused}
    models = make("large", conditional=False), make("large", conditional=False)
    load_npz(dump(tmp_path, values), models[0])
    assert load_npz(dump(tmp_path, slim), models[1]) == report._replace(unused=())
    pairs = zip(*(model.state_dict().values() for model in models), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def refused(tmp_path, values, **options):
    """The text of the error; the model must be as it was."""
    model = make(**options)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(CheckpointError) as caught:
        load_npz(dump(tmp_path, values), model)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    return str(caught.value)


def test_all_that_does_not_fit_is_listed_at_once(tmp_path):
    values = arrays()
    del values["context_0/c1_pre/cweight"]
    values["context_0/res_1_res_c2/g"] = np.ones((4,), np.float32)
    values["context_0/res_1_res_c1/b"] = np.ones((5,), np.float32)
    values["context_0/res_9_res_c1/cweight"] = np.ones((3, 3, 4, 4), np.float32)
    values["context_0/fc5/b"] = np.ones(1, np.int64)
    values["context_0/fc5/wweight"][0] = np.nan
    text = refused(tmp_path, values)
    for said in (
        "context_0/c1_pre/cweight is missing",
        "context_0/res_1_res_c2/g is (4,) instead of (10, 4)",
        "context_0/res_1_res_c1/b is (5,) instead of (4,)",
        "context_0/res_9_res_c1/cweight is unknown",
        "context_0/fc5/b holds int64, not floats",
        "context_0/fc5/wweight holds numbers that are not finite",
        "conditional igebm of 10 classes, 6 blocks and width 4, and nothing was loaded",
        "Choose the net, width and conditional",
    ):
        assert said in text
    assert "res_2_res_c1" not in text


def test_another_network_is_refused(tmp_path):
    assert "res_8_res_c1/cweight is missing" in refused(tmp_path, arrays(), net="large")
    assert "/g is (4,) instead of (10, 4)" in refused(tmp_path, arrays(classes=1))


def test_a_network_with_attention_is_refused(tmp_path):
    text = refused(tmp_path, arrays() | {"context_0/atten/gamma": np.full(1, 0.3, np.float32)})
    assert "with attention" in text


class Trap:
    def __reduce__(self):
        return pytest.fail, ("a pickle was read",)


def test_pickles_are_never_read(tmp_path):
    values = arrays() | {"context_0/c1_pre/cweight": np.array([Trap()], dtype=object)}
    text = refused(tmp_path, values)
    assert "context_0/c1_pre/cweight cannot be read" in text
    assert "missing" not in text


@pytest.mark.parametrize(
    "content",
    [b"", b"not a dump", pickle.dumps({"context_0/fc5/b": 1.0}), b"PK\x03\x04 cut off"],
    ids=["empty", "text", "pickle", "torn"],
)
def test_files_that_are_no_dump(tmp_path, content):
    path = tmp_path / "dump.npz"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"is not an \.npz dump of a checkpoint .*README"):
        load_npz(path, make())


def test_one_array_is_no_dump(tmp_path):
    np.save(tmp_path / "one.npy", np.ones(3))
    with pytest.raises(CheckpointError, match="one array"):
        load_npz(tmp_path / "one.npy", make())


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(CheckpointError, match="No such file"):
        load_npz(tmp_path / "nowhere.npz", make())


@pytest.mark.parametrize("shape", [(), (4,), (3, 3, 4, 0)])
@pytest.mark.parametrize("net", ["base", "large"])
def test_kernels_that_are_none_are_listed(tmp_path, net, shape):
    values = arrays(net)
    wrong = [f"context_0/{name}/cweight" for name in ("c1_pre", "res_optim_res_c1")]
    path = dump(tmp_path, values | dict.fromkeys(wrong, np.ones(shape, np.float32)))
    with pytest.raises(CheckpointError) as caught:
        PublishedCheckpoint().read(path, CIFAR, None)
    assert all(f"{name} is {shape} instead of (3, 3, " in str(caught.value) for name in wrong)


def test_numbers_too_large_for_the_model_are_refused(tmp_path):
    values = arrays()
    values["context_0/fc5/b"] = np.full(1, 1e300)
    assert "context_0/fc5/b holds numbers that are not finite in float32" in refused(tmp_path, values)
