"""A small convolutional network, trained by us on the dataset itself, whose features generation metrics compare.

It is used where Inception does not fit (8x8 digits) or its weights are not available. Its numbers carry its name
(``fid-digits-cnn``), never that of Inception's.

Legend: B batch, N images, C channels, H height, W width, K classes, D = 64 features.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import torch
from jaxtyping import Float, Int, UInt8
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from jembench import progress
from jembench.catalog.spec import slug
from jembench.data.pixels import noise_to_model, to_float
from jembench.errors import CheckpointError, NotApplicable, StoreError
from jembench.interfaces import Dataset, DataSpec, Features, Planned, Split
from jembench.models.devices import one_thread
from jembench.models.execution import without_compiler
from jembench.store import records, tensors

_SLOPE = 0.1
_BATCH = 500
_RECIPE: Mapping[str, Any] = {
    "net": "conv3x3 32, 64 with stride 2, 64; LeakyReLU 0.1; mean pool; linear",
    "iterations": 800,
    "batch": 64,
    "optimiser": "Adam",
    "rate": 3e-3,  # falls to 0 along a cosine
    "shift": 1,  # the largest shift of a batch, in pixels
    "data_noise": 0.1,  # standard deviation on [-1, 1]
    "seed": 0,
}


class SmallConvNet(nn.Module):
    """Three convolutions, a mean over the image and a linear layer: 64 features and K logits."""

    width = 64

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        half = self.width // 2
        self.body = nn.Sequential(
            nn.Conv2d(channels, half, 3, padding=1),
            nn.LeakyReLU(_SLOPE),
            nn.Conv2d(half, self.width, 3, stride=2, padding=1),
            nn.LeakyReLU(_SLOPE),
            nn.Conv2d(self.width, self.width, 3, padding=1),
            nn.LeakyReLU(_SLOPE),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.head = nn.Linear(self.width, classes)

    def forward(self, x: Float[Tensor, "B C H W"]) -> Features:
        pool = self.body(x)
        return Features(pool=pool, logits=self.head(pool))


class CnnFeatures:
    """The network ``{dataset}-cnn``: made once, kept in the cache with its record, and made again if damaged.

    Training is deterministic on one machine; between machines the rounding of float32 sums may differ, so the
    identity carries the checksum of the weights. ``name`` and ``identity`` are known once it is prepared.
    """

    dimensions = SmallConvNet.width
    trained_here = True

    def __init__(self) -> None:
        self.name = self.identity = "cnn"
        self._net: SmallConvNet | None = None
        self._data: DataSpec | None = None

    def check(self, planned: Planned) -> None:
        """Whether there are labels to train on.

        Raises:
            NotApplicable: if not.
        """
        if not planned.spec.num_classes:
            raise _no_labels(planned.spec)

    def prepare(self, dataset: Dataset, cache: Path, device: torch.device) -> None:
        """Load the network from ``cache``, or train it on the train split (seconds for digits) and keep it there.

        Raises:
            NotApplicable: if the dataset has no labels.
            StoreError: if the cache cannot be written.
        """
        spec, train = dataset.spec, dataset.split("train")
        if train.labels is None or spec.num_classes == 0:
            raise _no_labels(spec)
        name = f"{spec.name}-cnn"
        folder = cache / slug(name)
        made_from = {"recipe": dict(_RECIPE), "train_split": _checksum_of_split(train)}
        state = _kept(folder, made_from)
        if state is None:
            net = _train(spec, train.images, train.labels)
            state = net.state_dict()
            _keep(folder, state, {**made_from, **_test_accuracy(net, spec, dataset.split("test"))})
        net = _uninitialised(spec)
        net.load_state_dict(state)
        self._net, self._data = net.to(device).eval(), spec
        self.name, self.identity = name, f"{name}@{checksum(state)[:8]}"

    @torch.no_grad()
    def features(self, images: UInt8[Tensor, "N C H W"]) -> Features:
        """64 pooled features and K logits of each image, float32 on the CPU."""
        assert self._net is not None, "prepare() comes first"
        assert self._data is not None
        return _features(self._net, images, self._data)


def _no_labels(data: DataSpec) -> NotApplicable:
    return NotApplicable(
        f"The feature network cnn is trained on labels, and the dataset {data.name} has none. "
        "Use another feature network, for example --set fid.features=inception."
    )


def _features(net: SmallConvNet, images: Tensor, spec: DataSpec) -> Features:
    device = next(net.parameters()).device
    batches = progress.track(torch.split(images, _BATCH), "features", f"batches of {_BATCH}")
    parts = [net(to_float(batch.to(device), spec.bounds)) for batch in batches]
    return Features(*(torch.cat(part).cpu() for part in zip(*parts, strict=True)))


def checksum(state: Mapping[str, Tensor]) -> str:
    """SHA-256 of the names and values of weights."""
    digest = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        digest.update(name.encode())
        digest.update(tensor.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _checksum_of_split(split: Split) -> str:
    assert split.labels is not None
    return checksum({"images": split.images, "labels": split.labels})


# --- the cache --------------------------------------------------------------------------------------------------------


def _kept(folder: Path, made_from: Mapping[str, Any]) -> dict[str, Tensor] | None:
    """The weights in ``folder`` if they are whole and made from the same data by the same recipe."""
    try:
        record = records.read(folder / "record.json").data
        state = tensors.read(folder / "weights.safetensors", "").tensors
    except (OSError, StoreError, CheckpointError):
        return None  # absent or damaged: training again gives the same network
    expected = {**made_from, "sha256": checksum(state)}
    return state if expected.items() <= record.items() else None


def _keep(folder: Path, state: Mapping[str, Tensor], record: Mapping[str, Any]) -> None:
    tensors.write(folder / "weights.safetensors", state, {})
    versions = {"torch": torch.__version__, "safetensors": safetensors.__version__}
    records.write(folder / "record.json", {"sha256": checksum(state), **record, "versions": versions})


# --- training ---------------------------------------------------------------------------------------------------------


def _train(spec: DataSpec, images: UInt8[Tensor, "N C H W"], labels: Int[Tensor, " N"]) -> SmallConvNet:
    """Train on the CPU in one thread: with more, the order of sums and so the weights would depend on their number."""
    generator = Generator().manual_seed(_RECIPE["seed"])
    images, labels = images.cpu(), labels.cpu()
    with one_thread(), torch.enable_grad():
        net = _initialise(_uninitialised(spec), generator)
        optimiser = without_compiler(torch.optim.Adam)(net.parameters(), lr=_RECIPE["rate"])
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=_RECIPE["iterations"])
        for _ in progress.track(range(_RECIPE["iterations"]), "training", "iterations"):
            drawn = torch.randint(len(images), (_RECIPE["batch"],), generator=generator)
            x = _augment(to_float(images[drawn], spec.bounds), spec, generator)
            optimiser.zero_grad()
            F.cross_entropy(net(x).logits, labels[drawn]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()
    return net.eval()


def _augment(x: Float[Tensor, "B C H W"], spec: DataSpec, generator: Generator) -> Float[Tensor, "B C H W"]:
    """The batch, moved by at most a pixel in each direction, with noise."""
    _, height, width = spec.shape
    reach: int = _RECIPE["shift"]
    down, right = torch.randint(2 * reach + 1, (2,), generator=generator).tolist()
    padded = F.pad(x, (reach, reach, reach, reach), mode="replicate")
    noise = torch.randn(x.shape, generator=generator) * noise_to_model(_RECIPE["data_noise"], spec.bounds)
    return padded[..., down : down + height, right : right + width] + noise


def _uninitialised(spec: DataSpec) -> SmallConvNet:
    with torch.device("meta"):  # PyTorch's own initialisation would draw from the global generator
        net = SmallConvNet(spec.shape[0], spec.num_classes)
    return net.to_empty(device="cpu")


def _initialise(net: SmallConvNet, generator: Generator) -> SmallConvNet:
    for module in net.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight, a=_SLOPE, generator=generator)
            assert module.bias is not None
            nn.init.zeros_(module.bias)
    return net


@torch.no_grad()
def _test_accuracy(net: SmallConvNet, spec: DataSpec, test: Split) -> dict[str, float]:
    """The accuracy in %, for the record only: nothing was chosen by it."""
    if test.labels is None:
        return {}
    predicted = _features(net, test.images, spec).logits.argmax(dim=1)
    accuracy = 100 * (predicted == test.labels.cpu()).double().mean().item()
    return {"test_accuracy_percent": round(accuracy, 2)}
