"""The Inception network of the published IS and FID, as torch-fidelity has it.

Its weights are those of 2015-12-05 that FID was first computed with, converted from TensorFlow by torch-fidelity.

Legend: N images, C channels, H height, W width; 2,048 features, 1,008 logits.
"""

from __future__ import annotations

import hashlib
import http.client
import io
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from jaxtyping import UInt8
from torch import Tensor

from jembench import progress
from jembench.errors import CheckpointError, NotApplicable, Unavailable
from jembench.files import socket_timeout
from jembench.interfaces import Dataset, DataSpec, Features, Planned

WEIGHTS_FILE = "weights-inception-2015-12-05-6726825d.pth"
_TENSORS = 566
_BATCH = 32
_TIMEOUT_SECONDS = 20.0


@dataclass(kw_only=True)
class InceptionFeatures:
    """torch-fidelity's InceptionV3: pooled 2,048 features and the logits without bias, which its IS uses.

    Once prepared, its identity holds the first eight digits of its file's SHA-256: 6726825d for the published weights.

    Args:
        weights: a file that holds its state dict; "": the copy in torch hub's cache.
        download: fetch it into torch hub's cache if it is not there (96 MB).
    """

    weights: str = ""
    download: bool = False
    name: str = field(default="", init=False)
    identity: str = field(default="inception-2015-12-05", init=False)
    dimensions: ClassVar[int] = 2048
    _net: Any = field(default=None, init=False)

    def check(self, planned: Planned) -> None:
        """Whether the images can be shown to it, and the weights read.

        Raises:
            NotApplicable: if the images are neither grey nor RGB.
            Unavailable: if the weights are missing.
            CheckpointError: if the file holds something else.
        """
        _check_channels(planned.spec)
        if planned.fetching or not self.download or cached_path().is_file():
            path = self._find()
            read_state_dict(path.read_bytes(), path)

    def prepare(self, dataset: Dataset, cache: Path, device: torch.device) -> None:
        """Load the weights; neither ``cache`` nor the images of ``dataset`` are used.

        Raises:
            Unavailable: if the weights are missing, or the images are neither grey nor RGB.
            CheckpointError: if the file holds something else.
        """
        _check_channels(dataset.spec)
        path = self._find()
        content = path.read_bytes()
        self._net = build(read_state_dict(content, path), path).to(device)
        self.identity = f"inception-2015-12-05@{hashlib.sha256(content).hexdigest()[:8]}"

    @torch.no_grad()
    def features(self, images: UInt8[Tensor, "N C H W"]) -> Features:
        """Features of images of any size, float32 on the CPU; grey ones are repeated to RGB."""
        assert self._net is not None, "prepare() comes first"
        device = next(self._net.parameters()).device
        batches = progress.track(torch.split(images, _BATCH), "features", f"batches of {_BATCH}")
        parts = [self._net(batch.to(device).expand(-1, 3, -1, -1)) for batch in batches]
        return Features(*(torch.cat(part).cpu() for part in zip(*parts, strict=True)))

    def _find(self) -> Path:
        """Where the weights lie, downloaded first if asked for."""
        if self.weights:
            path = Path(self.weights).expanduser()
            if not path.is_file():
                raise Unavailable(f"There is no file {path}, given as the weights of inception. {_how_to_get()}")
            return path
        path = cached_path()
        if not path.is_file() and self.download:
            _fetch(path)
        if not path.is_file():
            raise Unavailable(f"Inception's weights are not available: there is no {path}. {_how_to_get()}")
        return path


def _check_channels(data: DataSpec) -> None:
    if data.shape[0] not in (1, 3):
        raise NotApplicable(
            f"Inception sees grey or RGB images; those of {data.name} have {data.shape[0]} channels. "
            "Use another feature network, for example --set fid.features=cnn."
        )


def cached_path() -> Path:
    """Where torch hub, and so torch-fidelity itself, keeps the weights."""
    return Path(torch.hub.get_dir()) / "checkpoints" / WEIGHTS_FILE


def _url() -> str:
    from torch_fidelity.feature_extractor_inceptionv3 import URL_INCEPTION_V3

    return str(URL_INCEPTION_V3)


def _how_to_get() -> str:
    return (
        "Let jembench fetch them (96 MB) with --set fid.features=inception:download=true, or download "
        f"{_url()} elsewhere and give --set fid.features=inception:weights=PATH. Without a download, --set "
        "fid.features=cnn trains a small network on the dataset. Each of fid, is, kid and prc has this option: "
        "--set is.features=cnn --set fid.features=cnn."
    )


def _fetch(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with socket_timeout(_TIMEOUT_SECONDS):
            torch.hub.download_url_to_file(_url(), str(path), hash_prefix="6726825d", progress=False)
    except (OSError, RuntimeError, http.client.HTTPException) as error:
        raise Unavailable(f"Inception's weights could not be fetched to {path}: {error}. {_how_to_get()}") from error


def read_state_dict(content: bytes, path: Path) -> dict[str, Tensor]:
    """Read weights without running any code that the file may hold.

    Raises:
        CheckpointError: if it is not a plain dictionary of Inception's 566 tensors; ``path`` is named.
    """
    try:
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise CheckpointError(f"{path} is not a file of weights: {_first_line(error)} {_wanted()}") from error
    if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
        raise CheckpointError(f"{path} holds no plain dictionary of tensors. {_wanted()}")
    if len(state) != _TENSORS:
        raise CheckpointError(f"{path} holds {len(state)} tensors instead of {_TENSORS}. {_wanted()}")
    return dict(state)


def build(state: Mapping[str, Tensor], path: Path) -> Any:
    """torch-fidelity's network with these weights, in eval mode, on the CPU.

    Its constructor unpickles the file that it is given, so it gets our own copy of the tensors and nothing else.

    Raises:
        CheckpointError: if a name or a shape is not Inception's.
    """
    from torch_fidelity.feature_extractor_inceptionv3 import FeatureExtractorInceptionV3

    copy = io.BytesIO()
    torch.save(dict(state), copy)
    copy.seek(0)
    try:
        with torch.random.fork_rng(devices=[]):  # the constructor initialises what the weights then replace
            return FeatureExtractorInceptionV3(
                "inception-v3-compat", ["2048", "logits_unbiased"], feature_extractor_weights_path=copy
            )
    except RuntimeError as error:
        raise CheckpointError(f"{path} does not fit Inception: {_first_line(error)} {_wanted()}") from error


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200].rstrip(".:") + "."


def _wanted() -> str:
    return f"What is wanted is torch-fidelity's own {WEIGHTS_FILE}; torchvision's Inception is another network."
