"""Foolbox, as attacks of ours use it. It is imported here and nowhere else.

Legend: B images, C channels, H height, W width, K classes.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from jembench.errors import Unavailable


def foolbox() -> Any:
    """The module.

    Raises:
        Unavailable: if it cannot be imported.
    """
    try:
        with _without_git(), warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of scipy's, by an attack that is not used here
            import foolbox
            import foolbox.attacks
    except ImportError as error:
        raise Unavailable(
            f"Foolbox cannot be imported ({error}). It makes the boundary and the pointwise attack; "
            "`pip install 'foolbox>=3.3.4'` installs it."
        ) from error
    return foolbox


@runtime_checkable
class Answering(Protocol):
    """What an attack may ask: a :class:`~jembench.attacks.target.Target`, or what stands before one."""

    def logits(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B K"]:
        """Of images in [0, 1]."""
        ...


def wrapped(target: Answering, device: torch.device) -> Any:
    """The model as foolbox sees it, on images of [0, 1]."""
    return foolbox().PyTorchModel(TargetModule(target, device), bounds=(0, 1), device=device)


class TargetModule(nn.Module):
    """A target on ``device`` as the module that libraries ask for; in evaluation mode.

    Its answers are on the images' device, since libraries choose their own: the CPU, or the first GPU.
    """

    def __init__(self, target: Answering, device: torch.device) -> None:
        super().__init__()
        self.eval()
        self._target = target
        self._device = device

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B K"]:
        return self._target.logits(x.to(self._device)).to(x.device)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Foolbox draws from the global generators: seeded within, and afterwards as they were."""
    state = np.random.get_state()  # noqa: NPY002  # it is the legacy generator that foolbox draws from
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        try:
            yield
        finally:
            np.random.set_state(state)  # noqa: NPY002


@contextmanager
def _without_git() -> Iterator[None]:
    """Without git, foolbox's model zoo fails at import unless this variable is set. The zoo is not used."""
    name = "GIT_PYTHON_REFRESH"
    before = os.environ.get(name)
    os.environ.setdefault(name, "quiet")
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
