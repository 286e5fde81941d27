"""Networks of TorchScript, whose code only the user names."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from jembench.catalog import registry, trust
from jembench.errors import CheckpointError, Remark, SpecError
from jembench.interfaces import DataSpec
from jembench.models import predictions
from jembench.models.capabilities import is_differentiable

DATA = DataSpec(name="set", shape=(1, 4, 4), num_classes=3)

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:FutureWarning")


class Smooth(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(x.flatten(1)).tanh()


class Cut(Smooth):
    def forward(self, x):
        return self.head(x.detach().flatten(1)).detach()


def saved(folder, net):
    script = torch.jit.trace(net, torch.zeros(2, 1, 4, 4), check_trace=False)
    script.save(folder / "net.pt")
    return f"torchscript:{folder / 'net.pt'}"


def read(model, quantity):
    levels = torch.arange(32, dtype=torch.uint8).view(2, 1, 4, 4)
    return predictions.read(model, levels, DATA, torch.device("cpu"), {quantity})[quantity]


@pytest.mark.parametrize("form", ["{0}", 'adapted:model="{0}",bounds=-1..1'])
def test_logits_and_gradients_are_the_network_s(tmp_path, form):
    net = Smooth()
    resolved = registry.resolve("models", form.format(saved(tmp_path, net)))
    assert resolved.is_pretrained
    model = resolved.make(DATA)
    x = torch.rand(2, 1, 4, 4)
    assert_close(model.logits(x), net(x))
    assert float(read(model, "grad-norm").min()) > 0


@pytest.mark.parametrize("form", ["{0}", 'adapted:model="{0}"'])
def test_a_network_without_gradients_is_measured_without(tmp_path, form):
    text = saved(tmp_path, Cut())
    with pytest.warns(Remark, match="has no gradients towards images"):
        model = registry.resolve("models", form.format(text)).make(DATA)
    assert not is_differentiable(model)
    assert read(model, "logits").shape == (2, 3)


def test_what_is_no_script_is_refused(tmp_path):
    torch.save(Smooth().state_dict(), tmp_path / "net.pt")
    with pytest.raises(CheckpointError, match=r"as TorchScript, .* adapted:model=my:Net,weights"):
        registry.resolve("models", f"torchscript:{tmp_path / 'net.pt'}").make(DATA)


def test_only_the_user_names_a_script(tmp_path):
    text = saved(tmp_path, Smooth())
    outer = f'adapted:model="{text}"'
    wrong = r"names torchscript:.*net\.pt, which runs code .* trust it, give torchscript:"
    for spec in (text, outer):
        with trust.command(["run", spec]):
            registry.resolve("models", spec).make(DATA)
        with trust.command(["run", "baseline"]), pytest.raises(SpecError, match=wrong):
            registry.resolve("models", spec).make(DATA)
    hidden = text.replace("t", "\\u0074", 1)
    with pytest.raises(SpecError, match=wrong), trust.command():
        trust.refuse_code([{"model": f'adapted:model="{hidden}"'}], "a store")
    trust.refuse_code(["adapted:model=baseline"], "a store")
