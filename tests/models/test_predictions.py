import types

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from jembench.data.pixels import to_float
from jembench.errors import SpecError
from jembench.interfaces import DataSpec
from jembench.models import predictions
from jembench.models.energies import LogitModel
from jembench.models.nets import small
from jembench.models.wide_resnet import ResidualNet

DATA = DataSpec(name="toy", shape=(1, 8, 8), num_classes=3)
CPU = torch.device("cpu")
ALL = {"logits", "energy", "grad-norm"}


def images(n, seed=0):
    return torch.randint(
        256, (n, *DATA.shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed)
    )


class Counting(LogitModel):
    """Counts the passes through its network."""

    def __init__(self):
        torch.manual_seed(0)
        super().__init__(ResidualNet(1, 3, small(4)))
        self.passes = 0
        self.net.register_forward_hook(self._count)

    def _count(self, *_):
        self.passes += 1


class Linear(LogitModel):
    """f(x) = A x."""

    def __init__(self):
        super().__init__(
            torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3, bias=False))
        )


class Quadratic(torch.nn.Module):
    """log p(x) = -|x|^2 and nothing else: the gradient's norm is 2 |x|."""

    def log_prob(self, x, y=None):
        return -x.square().flatten(1).sum(1)


class Apart(LogitModel):
    """A classifier with an energy of its own."""

    def __init__(self):
        super().__init__(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3)))

    def energy(self, x, y=None):
        return 3 * x.flatten(1).sum(1)


def test_all_three_come_from_one_pass():
    model = Counting()
    found = predictions.read(model, images(7), DATA, CPU, ALL)
    assert model.passes == 1
    assert {quantity: tuple(reading.shape) for quantity, reading in found.items()} == {
        "logits": (7, 3),
        "energy": (7,),
        "grad-norm": (7,),
    }


@pytest.mark.parametrize("wanted", [{"logits"}, {"energy"}, {"grad-norm"}, {"logits", "grad-norm"}])
def test_only_what_is_wanted_is_given_and_it_does_not_depend_on_what_else_is(wanted):
    model = Counting()
    everything = predictions.read(model, images(5), DATA, CPU, ALL)
    found = predictions.read(model, images(5), DATA, CPU, wanted)
    assert found.keys() == wanted
    for quantity, reading in found.items():
        assert torch.equal(reading, everything[quantity])


def test_the_gradient_norm_of_a_linear_model_by_its_closed_form():
    """E = -logsumexp A x, so dE/dx = -A^T softmax(A x)."""
    model = Linear()
    x = to_float(images(6), DATA.bounds)
    weight = model.net[1].weight.detach().double()
    expected = ((x.flatten(1).double() @ weight.T).softmax(1) @ weight).norm(dim=1)
    found = predictions.read(model, images(6), DATA, CPU, {"grad-norm"})["grad-norm"]
    assert torch.allclose(found.double(), expected, rtol=1e-5)


def test_a_density_is_read_as_an_energy():
    x = to_float(images(4), DATA.bounds).flatten(1)
    found = predictions.read(Quadratic(), images(4), DATA, CPU, {"energy", "grad-norm"})
    assert torch.allclose(found["energy"], x.square().sum(1), rtol=1e-5)
    assert torch.allclose(found["grad-norm"], 2 * x.norm(dim=1), rtol=1e-5)


def test_an_energy_of_its_own_is_not_that_of_the_logits():
    model = Apart()
    found = predictions.read(model, images(4), DATA, CPU, ALL)
    x = to_float(images(4), DATA.bounds).flatten(1)
    assert torch.allclose(found["energy"], 3 * x.sum(1), rtol=1e-5)
    assert torch.allclose(found["grad-norm"], torch.full((4,), 24.0))


def test_no_value_depends_on_the_size_of_the_parts(monkeypatch):
    model = Counting()
    whole = predictions.read(model, images(9), DATA, CPU, ALL)
    monkeypatch.setattr(predictions, "CPU_BATCH", 2)
    pieces = predictions.read(model, images(9), DATA, CPU, ALL)
    for quantity, reading in whole.items():
        assert torch.allclose(reading, pieces[quantity], atol=1e-6)


def test_no_output_of_a_pass_outlives_the_next_pass(monkeypatch):
    monkeypatch.setattr(predictions, "CPU_BATCH", 2)
    model, outputs = Counting().double().eval(), []
    x = to_float(images(9), DATA.bounds).double()
    expected = model.logits(x).detach()

    def remember(network, inputs, output):
        assert all(earlier.expired() for earlier in outputs)
        outputs.append(StorageWeakRef(output.untyped_storage()))

    model.net.register_forward_hook(remember)
    logits = predictions.read(model, x, DATA, CPU, {"logits"})["logits"]
    assert len(outputs) == 5
    assert logits.dtype == torch.float64
    assert torch.allclose(logits, expected, rtol=1e-12)


def test_a_pass_of_large_images_takes_the_memory_of_a_hundred_small_ones():
    sides = (8, 64, 65, 128, 224, 4096)
    sizes = [predictions.batch(CPU, (3, side, side)) for side in sides]
    assert sizes == [100, 100, 96, 25, 8, 1]


def test_the_size_of_a_batch_is_set_by_a_variable(monkeypatch):
    monkeypatch.setenv("JEMBENCH_BATCH", "6")
    parts = predictions.in_parts(lambda part: (part.start, part.stop), 8, CPU, DATA.shape, copies=2)
    assert parts == [(0, 3), (3, 6), (6, 8)]
    monkeypatch.setenv("JEMBENCH_BATCH", "none")
    with pytest.raises(
        SpecError, match="JEMBENCH_BATCH is 'none'; it must be a whole number from 1 up, of images"
    ):
        predictions.in_parts(lambda part: None, 8, CPU, DATA.shape)


def test_as_many_images_a_pass_as_the_memory_of_a_gpu_holds(monkeypatch):
    properties = types.SimpleNamespace(total_memory=80 * 10**9)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    cuda = torch.device("cuda")
    assert predictions.batch(cuda, (3, 32, 32)) == 2384
    assert predictions.batch(cuda, (1, 8, 8)) == pytest.approx(16 * 2384, abs=16)
    assert predictions.batch(cuda, (3, 32, 32), copies=5) == 2384 // 5
    assert predictions.batch(cuda, (3, 4096, 4096)) == 1


def test_no_images_give_no_readings():
    found = predictions.read(Counting(), images(0), DATA, CPU, ALL)
    assert found["logits"].shape == (0, 3)
    assert found["grad-norm"].shape == (0,)


def test_reading_leaves_gradients_modes_and_images_as_they_were():
    model = Counting().train()
    given = images(4)
    before = given.clone()
    predictions.read(model, given, DATA, CPU, ALL)
    assert all(
        parameter.grad is None and parameter.requires_grad for parameter in model.parameters()
    )
    assert all(module.training for module in model.modules())
    assert torch.equal(given, before)


def test_autocast_and_no_grad_around_it_change_nothing():
    model = Counting()
    expected = predictions.read(model, images(4), DATA, CPU, ALL)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        found = predictions.read(model, images(4), DATA, CPU, ALL)
    for quantity, reading in expected.items():
        assert reading.dtype == torch.float32
        assert torch.equal(reading, found[quantity])
