"""Feature networks with published weights, computed by torch-fidelity.

The module imports torch inside functions, since its classes are registered as factories.

Legend: N images, C channels, H height, W width.
"""

from __future__ import annotations

import hashlib
import http.client
import io
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

from jembench.catalog.options import Content, Incidental
from jembench.errors import CheckpointError, NotApplicable, Unavailable
from jembench.files import path_of, socket_timeout
from jembench.interfaces import Dataset, DataSpec, Features, Planned
from jembench.metrics.features import in_batches

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_BATCH = 32
_TIMEOUT_SECONDS = 20.0


class WeightsFile(NamedTuple):
    """The published weights of a network."""

    network: str  # in messages
    # from the file's content, whose digest was checked, to the network
    build: Callable[[bytes], Any]
    size: str
    digest: str  # the SHA-256, or its first digits
    url: str

    @property
    def cached(self) -> Path:
        """The path in torch hub's cache."""
        import torch

        return Path(torch.hub.get_dir()) / "checkpoints" / self.url.rpartition("/")[2]


@dataclass(kw_only=True)
class Pretrained:
    """A feature network with published weights, which a subclass names."""

    weights: Annotated[str, Content()] = ""
    download: Annotated[bool, Incidental()] = False
    identity: str = field(default="", init=False)
    name: ClassVar[str]
    dimensions: ClassVar[int]
    published: ClassVar[WeightsFile]
    classifies: ClassVar[bool] = False
    _net: Any = field(default=None, init=False)

    def check(self, planned: Planned) -> None:
        """Check that the images are grey or RGB, and that the weights are available.

        Raises:
            NotApplicable: if the images are neither grey nor RGB.
            Unavailable: if the weights are missing.
            CheckpointError: if the file holds other weights.
        """
        if planned.fetching or not self.download or self.published.cached.is_file():
            self._read(planned.spec)

    def prepare(self, dataset: Dataset, cache: Path, device: torch.device) -> None:
        """Load the weights; errors as for :meth:`check`.

        Neither ``cache`` nor images of ``dataset`` are used.
        """
        import torch

        content, digest = self._read(dataset.spec)
        with torch.random.fork_rng(devices=[]):  # constructors draw initial weights
            self._net = self.published.build(content).to(device)
        self.identity = f"{type(self).identity}@{digest[:8]}"

    def features(self, images: Tensor) -> Features:
        """Return the features of images, uint8 (N, C, H, W): float32 on the CPU.

        Grey images are expanded to RGB.
        """

        def evaluate(batch: Tensor) -> tuple[Tensor, Tensor]:
            pool, *logits = self._net(batch.expand(-1, 3, -1, -1))
            if not logits:
                return pool, pool[:, :0]
            return pool, logits[0]

        return in_batches(self._net, evaluate, images, _BATCH)

    def _read(self, data: DataSpec) -> tuple[bytes, str]:
        """Read the weights for images of ``data``, and their digest.

        Missing weights are downloaded first if ``download`` is set.
        """
        network, _, size, expected, url = self.published
        if data.shape[0] not in (1, 3):
            raise NotApplicable(
                f"{network} takes grey or RGB images; those of {data.name} have {data.shape[0]} "
                "channels. Use another feature network, for example --set fid.features=cnn."
            )
        path, option = self.published.cached, f"--set fid.features={self.name or 'inception'}"
        how_to_get = f"Download {url} elsewhere and give {option}:weights=PATH."
        if not self.download:
            how_to_get = (
                f"Let jembench fetch them ({size}) with {option}:download=true, or download {url} "
                f"elsewhere and give {option}:weights=PATH."
            )
        if data.num_classes:
            how_to_get += (
                " Without a download, --set fid.features=cnn trains a small network on the dataset."
            )
        how_to_get += " Each metric of features has this option."
        if self.weights:
            path = path_of(self.weights)
        elif self.download and not path.is_file():
            try:
                _fetch(self.published)
            except (OSError, RuntimeError, http.client.HTTPException) as error:
                why = f"{network}'s weights could not be fetched to {path}: {error}. {how_to_get}"
                raise Unavailable(why) from error
        if not path.is_file():
            raise Unavailable(
                f"{network}'s weights are not available: there is no file {path}. {how_to_get}"
            )
        content = path.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        if not digest.startswith(expected):
            begins = f"its SHA-256 begins with {digest[:8]}, not with {expected[:8]}"
            raise CheckpointError(
                f"{path} does not hold {network}'s weights: {begins}. {how_to_get}"
            )
        return content, digest


def _fetch(weights: WeightsFile) -> None:
    import torch

    weights.cached.parent.mkdir(parents=True, exist_ok=True)
    with socket_timeout(_TIMEOUT_SECONDS):
        torch.hub.download_url_to_file(
            weights.url, str(weights.cached), hash_prefix=weights.digest, progress=False
        )


# --- the networks ---------------------------------------------------------------------------------


def _inception(content: bytes) -> Any:
    """Return torch-fidelity's network with weights that run no code.

    The network's constructor unpickles a copy of weights that were loaded safely.
    """
    import torch
    from torch_fidelity.feature_extractor_inceptionv3 import FeatureExtractorInceptionV3

    weights = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    copy = io.BytesIO()
    torch.save(weights, copy)
    copy.seek(0)
    return FeatureExtractorInceptionV3("inception-v3-compat", ["2048", "logits_unbiased"], copy)


_INCEPTION = "https://github.com/toshas/torch-fidelity/releases/download/v0.2.0/weights-inception-2015-12-05-6726825d.pth"


@dataclass(kw_only=True)
class InceptionFeatures(Pretrained):
    """The Inception network of the published IS and FID; needs 96 MB of weights.

    The network is torch-fidelity's: 2,048 pooled features and 1,008 logits without bias, which
    torch-fidelity's IS uses. ``weights`` is the path of its weights (torch hub's cache by default);
    ``download=true`` fetches the weights into the cache.
    """

    identity: str = field(default="inception-2015-12-05", init=False)
    name = ""
    dimensions = 2048
    published = WeightsFile("Inception", _inception, "96 MB", "6726825d", _INCEPTION)
    classifies = True
