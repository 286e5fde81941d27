"""A feature network that is trained on the dataset itself.

Its features compare generated images with images of the dataset.

The module imports torch inside functions, since its class is registered as a factory.

Legend: N images, C channels, H height, W width, K classes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jembench.catalog.spec import slug
from jembench.data.datasets import no_training_images
from jembench.errors import CheckpointError, NotApplicable, StoreError
from jembench.interfaces import Dataset, DataSpec, Features, Planned

if TYPE_CHECKING:
    import torch
    from jaxtyping import UInt8
    from torch import Tensor

    from jembench.store.tensors import Contents

RECIPE: dict[str, Any] = {
    "net": "conv3x3 32, 64 with stride 2, 64; LeakyReLU 0.1; mean pool; linear",
    "iterations": 800,
    "batch": 64,
    "rate": 3e-3,  # of Adam; falls to 0 along a cosine
    "shift": 1,  # the largest shift of a batch, in pixels
    "data_noise": 0.1,  # standard deviation on [-1, 1]
}

CHECKPOINT_EVERY = 50
"""Iterations between two checkpoints of the training of a feature network."""


@dataclass(kw_only=True)
class CnnFeatures:
    """A small convolutional network trained on the dataset itself.

    The labels of values contain the network's name.

    It serves images that do not suit Inception (8x8 digits), and machines without Inception's
    weights. The network ``{dataset}-cnn`` is trained once and kept in the cache. Training is
    deterministic on one machine; between machines the rounding of float32 sums may differ, so the
    identity contains a checksum of the weights. The network of digits is part of jembench, so that
    values on digits have one protocol on all machines.
    """

    name: str = field(default="cnn", init=False)
    identity: str = field(default="cnn", init=False)
    dimensions = 64
    trained_here = True
    _net: Any = field(default=None, init=False)
    _data: Any = field(default=None, init=False)

    def check(self, planned: Planned) -> None:
        """Check that the dataset has labels to train on.

        Raises:
            NotApplicable: if it has none.
        """
        _check_classes(planned.spec)

    def prepare(self, dataset: Dataset, cache: Path, device: torch.device) -> None:
        """Load the network from this package or ``cache``, or train it.

        It is trained on the train split, and kept in ``cache``.

        Raises:
            NotApplicable: if the dataset has no labels, or no training images.
            StoreError: if the cache cannot be written.
        """
        from jembench.data.pixels import content_hash
        from jembench.store import tensors

        spec, train = dataset.spec, dataset.split("train")
        _check_classes(spec)
        if len(train.images) == 0:
            raise no_training_images(spec.name, "the feature network is trained on them")
        assert train.labels is not None, "there are classes"
        self.name, self._data = f"{spec.name}-cnn", spec
        record = {
            "recipe": RECIPE,
            "images": content_hash(train.images),
            "labels": content_hash(train.labels),
        }
        published = Path(__file__).with_name(f"{slug(self.name)}.safetensors")
        own = cache / slug(self.name) / "weights.safetensors"
        contents = _stored(published, record) or _stored(own, record)
        if contents is None:
            unfinished = own.with_name("training.safetensors")
            net = _train(spec, train.images.cpu(), train.labels.cpu(), unfinished, record)
            tensors.write(own, net.state_dict(), record)
            contents = tensors.read(own, "")
            unfinished.unlink(missing_ok=True)

        self._net = _make_net(spec)
        self._net.load_state_dict(contents.tensors)
        self._net.to(device).eval()
        self.identity = f"{self.name}@{contents.seal.digest[:8]}"

    def features(self, images: UInt8[Tensor, "N C H W"]) -> Features:
        """Return 64 pooled features and K logits of each image, float32 on the CPU."""
        from jembench.data.pixels import to_float

        def evaluate(batch: Tensor) -> tuple[Tensor, Tensor]:
            pool = self._net[:-1](to_float(batch, self._data.bounds))
            return pool, self._net[-1](pool)

        return in_batches(self._net, evaluate, images, 500)


def _check_classes(data: DataSpec) -> None:
    if not data.num_classes:
        raise NotApplicable(
            f"The feature network cnn is trained on labels, and the dataset {data.name} has none. "
            "Use another feature network, for example --set fid.features=inception."
        )


def _stored(path: Path, record: dict[str, Any]) -> Contents | None:
    """Return the weights of a file; None: they are to be trained."""
    from jembench.store import tensors

    # absent or damaged: training again gives the same weights
    with suppress(OSError, StoreError, CheckpointError):
        contents = tensors.read(path, "")
        if contents.seal.record == record:
            return contents
    return None


def _make_net(spec: DataSpec) -> Any:
    from torch import nn

    from jembench import seeds

    def convolution(into: int, out: int, stride: int = 1) -> list[nn.Module]:
        return [nn.Conv2d(into, out, 3, stride=stride, padding=1), nn.LeakyReLU(0.1)]

    with seeds.drawing(0, "initialisation"):
        layers = [
            *convolution(spec.shape[0], 32),
            *convolution(32, 64, stride=2),
            *convolution(64, 64),
        ]
        linear = nn.Linear(64, spec.num_classes)
        net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), linear)
        for weights in net.parameters():
            if weights.ndim > 1:
                nn.init.kaiming_normal_(weights, a=0.1)
            else:
                nn.init.zeros_(weights)
    return net


def _train(
    spec: DataSpec, images: Tensor, labels: Tensor, kept: Path, record: dict[str, Any]
) -> Any:
    """Train on the CPU in one thread, since weights depend on the order of sums.

    A checkpoint is written to ``kept`` after a signal and every ``CHECKPOINT_EVERY`` iterations;
    training continues from it if its record is ``record``.
    """
    import torch
    from torch.nn import functional as F

    from jembench import progress, seeds, stopping
    from jembench.models.devices import one_thread
    from jembench.models.execution import light
    from jembench.store import checkpoint

    iterations = RECIPE["iterations"]
    with (
        one_thread(),
        seeds.drawing(0, "feature network cnn"),
        torch.enable_grad(),
        stopping.deferred(),
    ):
        net = _make_net(spec)
        optimiser = light(torch.optim.Adam)(net.parameters(), lr=RECIPE["rate"])
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=iterations)
        parts = {"net": net, "optimiser": optimiser, "schedule": schedule}
        begin = _resume(kept, record, parts)
        with progress.phase("training", iterations, "iterations", begin) as shown:
            while shown.done < iterations:
                drawn = torch.randint(len(images), (RECIPE["batch"],))
                x = _augmented(images[drawn], spec)
                optimiser.zero_grad()
                loss = F.cross_entropy(net(x), labels[drawn])
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
                schedule.step()
                shown.done += 1
                if shown.done % CHECKPOINT_EVERY == 0 or stopping.received():
                    state = {name: part.state_dict() for name, part in parts.items()}
                    state |= {"record": record, "iteration": shown.done}
                    state["random"] = torch.get_rng_state()
                    checkpoint.write(kept, state)
                    stopping.check()
    return net.eval()


def _resume(kept: Path, record: dict[str, Any], parts: dict[str, Any]) -> int:
    """Load a checkpoint with the same record, and return its iteration."""
    import torch

    from jembench.store import checkpoint

    with suppress(OSError, CheckpointError):  # absent or damaged: training starts anew
        state = checkpoint.read(kept)
        if state.get("record") == record:
            for name, part in parts.items():
                part.load_state_dict(state[name])
            torch.set_rng_state(state["random"])
            return int(state["iteration"])
    return 0


def _augmented(images: Tensor, spec: DataSpec) -> Tensor:
    """Return images in the bounds of the data, shifted at random and with noise."""
    import torch
    from torch.nn import functional as F

    from jembench.data.pixels import noise_to_model, to_float

    _, height, width = spec.shape
    reach = RECIPE["shift"]
    down, right = torch.randint(2 * reach + 1, (2,)).tolist()
    padded = F.pad(to_float(images, spec.bounds), (reach,) * 4, mode="replicate")
    x = padded[..., down : down + height, right : right + width]
    noise = noise_to_model(RECIPE["data_noise"], spec.bounds)
    return x + noise * torch.randn_like(x)


def in_batches(net: Any, evaluate: Callable[[Tensor], Any], images: Tensor, size: int) -> Features:
    """Evaluate pooled features and logits in batches of ``size`` images, float32 on the CPU."""
    import torch

    from jembench import progress

    device = next(net.parameters()).device
    with torch.no_grad():
        starts = range(0, max(1, len(images)), size)
        tracked = progress.track(starts, "features", f"batches of {size}")
        parts = [evaluate(images[start : start + size].to(device)) for start in tracked]
    pools, logits = zip(*parts, strict=True)
    return Features(torch.cat(pools).cpu(), torch.cat(logits).cpu())
