"""The identity of a module is all that its forward pass can read."""

import collections
import copy
import enum
import functools
import gc
import math
import os
import random
import subprocess
import sys
import threading
import types
import warnings
import weakref

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, prune

from jembench.catalog.object_identity import object_digest

SCALE = 1.0
BOX = {"height": 1.0}


def scaled(x):
    return x * SCALE * BOX["height"] * math.pi


class Level(enum.Enum):
    LOW = 1
    HIGH = 2


class Slots:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


class Listed(list):
    """A list of the user's own class."""


class Net(nn.Module):
    factor = 1.0

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Linear(4, 3)

    def forward(self, x):
        return scaled(self.body(x)) * self.factor


def identity(value):
    digest, unknown = object_digest(value)
    assert unknown == []
    return digest


def net_with(value):
    net = Net()
    net.extra = value
    return net


def generator(seed):
    return torch.Generator().manual_seed(seed)


class Times(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return x * self.factor


def scripted(factor):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated, and still used
        return torch.jit.script(Times(factor))


def drawn(seed):
    numbers = np.random.default_rng(seed)
    numbers.random()
    return numbers


PAIRS = {
    "number": (1.0, 1e6),
    "type of a number": (1, True),
    "text": ("a", "b"),
    "very long number": (10**5000, 10**5000 + 1),
    "array": (np.arange(3), np.arange(3) + 1),
    "type of an array": (np.zeros(2, "int64"), np.zeros(2, "float64")),
    "array of objects": (np.array([1, "a"], object), np.array([1, "b"], object)),
    "number of NumPy": (np.float32(1), np.float32(2)),
    "tensor": (torch.zeros(2), torch.ones(2)),
    "type of a tensor": (torch.zeros(2), torch.zeros(2).half()),
    "complex tensor": (torch.tensor(1j), torch.tensor(2j)),
    "sparse tensor": (torch.eye(2).to_sparse(), (2 * torch.eye(2)).to_sparse()),
    "dtype": (torch.float32, torch.float16),
    "generator": (generator(1), generator(2)),
    "generator of NumPy": (drawn(1), drawn(2)),
    "generator of Python": (random.Random(1), random.Random(2)),
    "slots": (Slots(1), Slots(2)),
    "member of an enum": (Level.LOW, Level.HIGH),
    "partial": (functools.partial(torch.mul, other=2), functools.partial(torch.mul, other=3)),
    "function": (torch.tanh, torch.relu),
    "installed function": (F.relu, F.gelu),
    "universal function": (np.tanh, np.exp),
    "lambda": (lambda x: x * 2, lambda x: x * 3),
    "default": (lambda x, by=2: x * by, lambda x, by=3: x * by),
    "name of an attribute": (lambda x: x.real, lambda x: x.imag),
    "bound method": (Slots(1).__init__, Slots(2).__init__),
    "list": ([1, [2]], [1, [3]]),
    "own list": (Listed([1]), Listed([2])),
    "keys": ({"a": 1, "b": 2}, {"a": 1, "c": 2}),
    "order": (collections.OrderedDict(a=1, b=2), collections.OrderedDict(b=2, a=1)),
    "deque": (collections.deque([1, 2]), collections.deque([1, 3])),
    "set": ({"a", "b"}, {"a", "c"}),
    "default of a dict": (collections.defaultdict(int), collections.defaultdict(list)),
    "namespace": (types.SimpleNamespace(a=1), types.SimpleNamespace(a=2)),
    "weak reference": (weakref.ref(Level.LOW), weakref.ref(Level.HIGH)),
    "pattern": (__import__("re").compile("a"), __import__("re").compile("b")),
    "script": (scripted(1.0), scripted(2.0)),
}


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_attributes_that_differ(pair):
    first, second = (net_with(value) for value in pair)
    assert len({identity(Net()), identity(first), identity(second)}) == 3
    assert identity(first) == identity(net_with(pair[0]))


def changed(how):
    net = Net()
    how(net)
    return net


def patch_forward(net):
    net.forward = types.MethodType(lambda self, x: x, net)


CHANGES = {
    "buffer": lambda net: net.register_buffer("b", torch.ones(1)),
    "other buffer": lambda net: net.register_buffer("b", torch.zeros(1)),
    "buffer outside of the state": lambda net: net.register_buffer(
        "b", torch.ones(1), persistent=False
    ),
    "hook": lambda net: net.body.register_forward_hook(lambda module, x, y: 2 * y),
    "other hook": lambda net: net.body.register_forward_hook(lambda module, x, y: 3 * y),
    "hook before": lambda net: net.body.register_forward_pre_hook(lambda module, x: (2 * x[0],)),
    "hook with arguments": lambda net: net.body.register_forward_hook(
        lambda module, x, kwargs, y: 2 * y, with_kwargs=True
    ),
    "forward of the object": patch_forward,
    "dtype": lambda net: net.double(),
    "frozen": lambda net: net.requires_grad_(False),
    "parametrization": lambda net: parametrizations.weight_norm(net.body),
    "pruning": lambda net: prune.l1_unstructured(net.body, "weight", 0.5),
    "another layer": lambda net: setattr(net, "body", nn.Linear(4, 3, bias=False)),
    "a layer more": lambda net: net.add_module("more", nn.Dropout(0.5)),
}


def test_every_change_of_a_module_is_another_one():
    digests = {name: identity(changed(how)) for name, how in CHANGES.items()}
    digests |= {"none": identity(Net()), "parallel": identity(nn.DataParallel(Net()))}
    assert len(set(digests.values())) == len(digests)


@pytest.mark.parametrize(
    "how", [lambda net: None, CHANGES["buffer"], CHANGES["hook"], CHANGES["parametrization"]]
)
def test_what_changes_no_output_changes_no_identity(how):
    net = copy.deepcopy(changed(how))
    before = identity(net)
    net.body.register_forward_hook(lambda module, x, y: y).remove()
    net.eval()(torch.ones(2, 4)).sum().backward()
    assert identity(net) == identity(copy.deepcopy(net)) == before
    wrapper = nn.Module()
    wrapper._orig_mod = net
    wrapper.__class__ = type(
        "OptimizedModule", (nn.Module,), {"__module__": "torch._dynamo.eval_frame"}
    )
    assert identity(wrapper) == before  # as torch.compile wraps it


@pytest.mark.parametrize(
    ("target", "name", "value"),
    [
        (sys.modules[__name__], "SCALE", 2.0),  # of a function that forward() calls
        (BOX, "height", 2.0),
        (Net, "factor", 2.0),
        (Net, "forward", lambda self, x: x),
        (nn.Linear, "forward", lambda self, x: x),
        (math, "sqrt", lambda x: x),  # which is not read
        (F, "relu", lambda x: x),
    ],
)
def test_what_lies_outside_of_the_module(target, name, value, monkeypatch):
    def act(x):
        return F.relu(x)

    net = net_with(act)
    before = identity(net)
    change = monkeypatch.setitem if target is BOX else monkeypatch.setattr
    change(target, name, value)
    assert (identity(net) == before) == (target is math)


def test_a_closure_and_a_helper_module_count(tmp_path, monkeypatch):
    def times(value):
        return lambda x: x * value

    assert identity(times(1)) != identity(times(2))
    (tmp_path / "own_helper.py").write_text("T = 1\n\ndef late():\n    return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    names = {}
    exec("def use(x):\n    from own_helper import T\n    return x * T\n", names)
    before = identity(names["use"])
    names["use"](1)
    assert identity(names["use"]) == before
    monkeypatch.setattr("own_helper.T", 2)
    assert identity(names["use"]) != before
    del sys.modules["own_helper"]


def test_a_module_in_a_closure_and_an_environment_variable_count(monkeypatch):
    module = types.ModuleType("of_a_notebook")
    module.factor = 1

    def act(x):
        return x * module.factor * float(os.environ["OWN_FACTOR"])

    monkeypatch.setenv("OWN_FACTOR", "1")
    before = identity(act)
    module.factor = 2
    assert identity(act) != before
    module.factor = 1
    monkeypatch.setenv("OTHER_FACTOR", "2")
    assert identity(act) == before
    monkeypatch.setenv("OWN_FACTOR", "2")
    assert identity(act) != before


def test_a_class_that_is_defined_anew(monkeypatch):
    def defined(factor):
        names = {"nn": nn, "__name__": "__main__"}
        exec(
            f"class Cell(nn.Module):\n    def forward(self, x):\n        return x * {factor}\n",
            names,
        )
        return names["Cell"]()

    assert identity(defined(1)) == identity(defined(1)) != identity(defined(2))
    names = {"__name__": "math"}  # it is no class of the module whose name it bears
    exec("class Cell:\n    factor = 1", names)
    other = dict(names)
    exec("class Cell:\n    factor = 2", other)
    assert identity(names["Cell"]()) != identity(other["Cell"]())


def test_hooks_of_the_same_kind_count_in_their_order():
    def net(*factors):
        made = Net()
        for factor in factors:
            made.body.register_forward_hook(
                functools.partial(lambda by, module, x, y: y * by, factor)
            )
        return made

    assert identity(net(1, 2)) == identity(net(1, 2)) != identity(net(2, 1))


@pytest.mark.parametrize(
    "value",
    [threading.Lock(), sys.__stdout__, (number for number in ()), lambda x: eval("SCALE") * x],
)
def test_what_cannot_be_compared_is_named(value):
    _, unknown = object_digest(net_with(value))
    assert len(unknown) == 1
    assert unknown[0].startswith("Net.extra")


def test_a_temporary_object_lends_its_id_to_no_other():
    class Fresh(nn.Module):
        @property
        def unused(self):
            return object()

    values = [[i] for i in range(50)]
    assert identity(net_with(values)) != identity(net_with([*values[:-1], [0]]))
    gc.collect()


SCRIPT = """
import sys
import torch
from torch import nn
from jembench.catalog.object_identity import object_digest

class Net(nn.Module):
    words = {"a", "b", "c", "d"}
    def __init__(self):
        super().__init__()
        self.names = {"x", "y", "z"}
        self.types = {int, str, float}
        self.lstm = nn.LSTM(2, 2)
        self.norm = torch.nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))
        for parameter in self.parameters():
            nn.init.ones_(parameter)
    def forward(self, x):
        return x if "a" in {"a", "b", "c"} else sorted(self.words)

print(*object_digest(Net()))
"""


def test_another_process_finds_the_same_identity(tmp_path, capsys):
    (tmp_path / "script.py").write_text(
        "from torch import nn\nnn.Linear(1, 1).register_forward_hook(print)\n" + SCRIPT
    )
    environment = {"PYTHONHASHSEED": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, tmp_path / "script.py"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    exec(SCRIPT, {"__name__": "__main__"})
    assert done.stdout == capsys.readouterr().out
    assert done.stdout.endswith(" []\n")
