"""A user's own module: a small dataset, and models and metrics that do well or go wrong in every
way there is.

Its folder is put on ``sys.path`` by the tests that use it, in this process or another.
"""

from __future__ import annotations

import io
import json
import math
import os
import signal
import sys
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch

from jembench.catalog.options import Names, pretrained
from jembench.errors import SpecError, StoreError, Unavailable
from jembench.interfaces import DataSpec, Measurement, Split, Value
from jembench.models.densities import ByBayes
from jembench.models.energies import LogitModel
from jembench.models.nets import build_net
from jembench.models.objective import Weights, hybrid_loss


class Shades:
    """Three classes of 4x4 images that differ in brightness."""

    spec = DataSpec(name="shades", shape=(1, 4, 4), num_classes=3)

    def split(self, name):
        n = {"train": 90, "test": 30}[name]
        labels = torch.arange(n) % 3
        noise = torch.randint(0, 40, (n, 1, 4, 4), generator=torch.Generator().manual_seed(n))
        return Split(
            (noise + 100 * labels[:, None, None, None]).clamp(max=255).to(torch.uint8), labels
        )


def data():
    return Shades()


class Trained(LogitModel):
    """A linear network, trained by the weights given."""

    def __init__(self, chains, weights, scale=1.0):
        super().__init__(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 3)))
        self.chains = chains
        self.weights = weights
        self.scale = scale

    def training_loss(self, batch, negatives):
        loss = hybrid_loss(self, batch, negatives, self.weights)
        return loss._replace(total=loss.total * self.scale)


def jem(data_spec, *, unused: int = 0):
    return Trained("marginal", Weights(cross_entropy=1, marginal=1))


def factored(data_spec):
    return Trained("conditional", Weights(cross_entropy=1, conditional=1))


def classifier(data_spec, *, width: int = 4):
    return Trained("none", Weights(cross_entropy=1))


def own_net(data_spec, *, net: Annotated[str, Names()]):
    model = Trained("none", Weights(cross_entropy=1))
    model.net = build_net(net, data_spec)
    return model


class Changed(Trained):
    """Its logits are changed by a function."""

    def __init__(self, change):
        super().__init__("none", Weights(cross_entropy=1))
        self.change = change

    def logits(self, x):
        return self.change(super().logits(x))


def dropping(data_spec):
    return Changed(lambda logits: torch.nn.functional.dropout(logits, 0.3))


def batchwise(data_spec):
    return Changed(lambda logits: logits - logits.mean(0))


class Normed(Trained):
    """Has batch norm, and passes other images than the labelled ones last."""

    def __init__(self, others):
        super().__init__("none", Weights(cross_entropy=1))
        self.net.insert(1, torch.nn.BatchNorm1d(16, momentum=0.9))
        self.others = others

    def training_loss(self, batch, negatives):
        loss = super().training_loss(batch, negatives)
        self(self.others(batch.x_labelled))
        return loss


def normed(data_spec):
    return Normed(lambda x: x)


def spoiled(data_spec):
    return Normed(lambda x: x + 3)


def mixing(data_spec):
    model = Normed(lambda x: x + 3)
    model.joint_pass = True
    return model


def diverging(data_spec):
    return Trained("none", Weights(cross_entropy=1), scale=math.inf)


LEFT = {
    "the current folder": lambda: os.chdir("/"),
    "the umask": lambda: os.umask(0o001),
    "environment variables": lambda: os.environ.update(JEMBENCH_DATA="/nowhere", HOME="/"),
    "handlers of signals": lambda: signal.signal(signal.SIGTERM, lambda number, frame: None),
    "sys.path": lambda: sys.path.insert(0, "/nowhere"),
    "stdout or stderr": lambda: setattr(sys, "stdout", io.StringIO()),
    "the grad mode": lambda: torch.set_grad_enabled(False),
    "the default dtype": lambda: torch.set_default_dtype(torch.float64),
    "the default device": lambda: torch.set_default_device("meta"),
    "the precision of float32 matrix products": lambda: torch.set_float32_matmul_precision(
        "medium"
    ),
    "the number of threads": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
    "deterministic algorithms": lambda: torch.use_deterministic_algorithms(True),
    "cuDNN's TF32": lambda: setattr(
        torch.backends.cudnn, "allow_tf32", not torch.backends.cudnn.allow_tf32
    ),
    "cuDNN's benchmark": lambda: setattr(
        torch.backends.cudnn, "benchmark", not torch.backends.cudnn.benchmark
    ),
}
"""Changes of settings, by their names in messages."""


class EndsAll(BaseException):
    """An error whose text cannot be made."""

    def __str__(self):
        raise ZeroDivisionError


class Leaving(Trained):
    """It does something after each iteration."""

    def __init__(self, do):
        super().__init__("none", Weights(cross_entropy=1))
        self.do = do

    def training_loss(self, batch, negatives):
        loss = super().training_loss(batch, negatives)
        self.do()
        return loss


def leaving(data_spec, *, setting: int, trained: bool = False):
    do = list(LEFT.values())[setting]
    if trained:
        return Leaving(do)
    model = classifier(data_spec)
    do()
    return model


def _end():
    raise EndsAll


def ending(data_spec):
    return Leaving(_end)


class Shaky(Trained):
    """Its loss is no number in some of the iterations, counted over all attempts."""

    def __init__(self, bad):
        super().__init__("marginal", Weights(cross_entropy=1, marginal=1))
        self.bad, self.done = bad, 0

    def training_loss(self, batch, negatives):
        self.done += 1
        self.scale = math.nan if self.done in self.bad else 1.0
        return super().training_loss(batch, negatives)


def shaky(data_spec):
    return Shaky({14, 20})


def confused(data_spec):
    return Trained("sideways", Weights(cross_entropy=1))


def untrainable(data_spec):
    return LogitModel(torch.nn.Flatten())


def needs_more(data_spec):
    raise ModuleNotFoundError("No module named 'timm'")


def no_module(data_spec):
    return object()


def exits(data_spec):
    raise SystemExit(3)


def frozen(data_spec):
    return jem(data_spec).requires_grad_(False)


def tied(data_spec):
    """A network of somebody else's, in which one layer is used twice, under two names."""
    layer = torch.nn.Linear(16, 16)
    return torch.nn.Sequential(
        torch.nn.Flatten(), layer, torch.nn.ReLU(), layer, torch.nn.Linear(16, 3)
    )


def lazy(data_spec):
    """A network of somebody else's, whose first pass makes its weights."""
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.LazyLinear(3))


class Hashed(Trained):
    """Its projection is drawn at random when it is made, and no checkpoint holds it."""

    def __init__(self):
        super().__init__("none", Weights(cross_entropy=1))
        projection = torch.randn(3, 3)
        self.net.register_forward_hook(lambda module, inputs, output: output @ projection)


def hashed(data_spec):
    return Hashed()


class Painter(Trained):
    """Draws images without a chain, or cannot."""

    def __init__(self, fails):
        super().__init__("none", Weights(cross_entropy=1))
        self.fails = fails

    def sample(self, n, y=None, *, generator):
        if self.fails:
            raise RuntimeError("out of paint")
        if y is not None:
            raise SpecError("paints whatever it likes")
        return 3 * torch.randn((n, 1, 4, 4), generator=generator)


def painter(data_spec, *, fails: bool = False):
    return Painter(fails)


class Kernels(ByBayes, torch.nn.Module):
    """Gaussian kernels at the images of each class, of a number not known at first."""

    data = Shades.spec
    differentiable = False

    def __init__(self, goes):
        super().__init__()
        self.goes = goes
        if goes != "unstored":
            self.register_buffer("images", torch.zeros(3, 1, 4, 4))
            self.register_buffer("labels", torch.arange(3))
            self.register_buffer("number", torch.zeros(()))

    def fit(self, x, y, *, generator):
        if self.goes == "wrong":
            raise ValueError("no covariance")
        self.images, self.labels, self.number = x, y, torch.rand((), generator=generator)
        if self.goes == "astray":
            self.number = self.number / 0

    def logits(self, x):
        x = x.detach().flatten(1)
        of_class = [self.images[self.labels == k].flatten(1) for k in range(3)]
        norm = [8 * math.log(2 * math.pi * 0.01) + math.log(len(images)) for images in of_class]
        sums = [(-torch.cdist(x, images).square() / 0.02).logsumexp(1) for images in of_class]
        return torch.stack(
            [total - constant for total, constant in zip(sums, norm, strict=True)], dim=1
        )

    def draw(self, y, generator):
        return torch.stack([self.images[self.labels == k][0] for k in y])


def kernels(data_spec, *, goes: Literal["well", "wrong", "astray", "unstored"] = "well"):
    return Kernels(goes)


CENTRE = 0.2
"""The one weight of the models below, as many times as there are pixels."""


class EnergyAlone(torch.nn.Module):
    """E(x) of a Gaussian, and nothing else."""

    def __init__(self, chains="none"):
        super().__init__()
        self.centre = torch.nn.Parameter(torch.full((1, 4, 4), CENTRE))
        self.chains = chains

    def energy(self, x, y=None):
        if y is not None:
            raise SpecError("has no classes")
        return ((x - self.centre) ** 2).flatten(1).sum(1) / 2


class DensityAlone(torch.nn.Module):
    """The density of the same Gaussian, and nothing else."""

    def __init__(self):
        super().__init__()
        self.of = EnergyAlone()

    def log_prob(self, x, y=None):
        return -self.of.energy(x, y) - 8 * math.log(2 * math.pi)


class PainterAlone(torch.nn.Module):
    """Draws images, and nothing else."""

    def sample(self, n, y=None, *, generator):
        if y is not None:
            raise SpecError("has no classes")
        return torch.rand((n, 1, 4, 4), generator=generator) * 2 - 1


@pretrained
def energy_alone(data_spec, *, chains: Literal["none", "marginal"] = "none"):
    return EnergyAlone(chains)


@pretrained
def density_alone(data_spec):
    return DensityAlone()


@pretrained
def painter_alone(data_spec):
    return PainterAlone()


@pretrained
def centred(data_spec):
    return EnergyAlone("marginal")


def plain(data_spec):
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 3))


@dataclass
class FromLogits:
    """Anything of the logits and the evaluation."""

    name: str
    measure: object
    requires: frozenset = frozenset({"logits"})

    def compute(self, evaluation):
        return self.measure(evaluation)


def measurement(value, **others):
    return Measurement(protocol="zoo", values={"it": Value(value, None, None, 1)}, **others)


def _score(evaluation):
    logits = evaluation.predictions.read("logits")
    noise = torch.rand((), generator=evaluation.services.generator("score"))
    return measurement(float(logits.double().mean() + noise), arrays={"file": logits.numpy()})


def score(*, weight: float = 1.0):
    return FromLogits("score", _score)


def _brightness(evaluation):
    samples = evaluation.samples()
    return measurement(float(samples.images.double().mean()), details={"source": samples.source})


def brightness():
    return FromLogits("brightness", _brightness, frozenset({"samples"}))


def energy():
    return FromLogits(
        "energy",
        lambda e: measurement(float(e.predictions.read("energy").double().mean())),
        frozenset({"energy"}),
    )


def _raises(evaluation):
    raise ZeroDivisionError("a metric's own bug")


def raises():
    return FromLogits("raises", _raises)


def leaves(*, setting: int):
    def compute(evaluation):
        found = _score(evaluation)
        list(LEFT.values())[setting]()
        return found

    return FromLogits("leaves", compute)


def ends():
    return FromLogits("ends", lambda evaluation: _end())


def _unavailable(evaluation):
    raise Unavailable("The weights are missing: fetch them.")


def unavailable():
    return FromLogits("unavailable", _unavailable)


def _full_disk(evaluation):
    raise StoreError("The disk is full.")


def full_disk():
    return FromLogits("full-disk", _full_disk)


ODD = {
    "nan": lambda: measurement(math.nan),
    "infinite-interval": lambda: Measurement(
        protocol="", values={"it": Value(1.0, -math.inf, 2.0, 1)}
    ),
    "nothing": lambda: Measurement(protocol="", values={}),
    "numpy": lambda: Measurement(
        protocol="",
        values={"it": Value(np.float32(0.5), torch.tensor(0.25), np.float64(1), np.int64(7))},
    ),
    "objects": lambda: measurement(1.0, arrays={"them": np.array([object()])}),
    "details": lambda: measurement(1.0, details={"them": object()}),
    "no-value": lambda: Measurement(protocol="", values={"it": 1.0}),
}


def odd(
    *,
    kind: Literal["nan", "infinite-interval", "nothing", "numpy", "objects", "details", "no-value"],
):
    return FromLogits("odd", lambda evaluation: ODD[kind]())


@dataclass
class Windows:
    """Appends each window of training, or everything, to a file, as a line of JSON."""

    file: str
    everything: bool

    def event(self, event):
        if event.kind == "window" or self.everything:
            with Path(self.file).open("a") as stream:
                stream.write(json.dumps(asdict(event)) + "\n")


def windows(*, file: str, everything: bool = False):
    return Windows(file, everything)


HANGING = threading.Event()


class Hanging:
    """Takes no event before a test says so."""

    def event(self, event):
        HANGING.wait()


def hanging():
    return Hanging()
