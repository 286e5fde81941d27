"""Anything that makes images as a model that has samples and nothing else: GANs, score-based models, diffusion.

Legend: N images, C channels, H height, W width, Z latent dimensions.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, cast

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from jembench.catalog import discovery, trust
from jembench.errors import PluginError, SpecError, error_text
from jembench.interfaces import DataSpec

Pixels = Literal["model", "-1..1", "0..1", "0..255"]

_A_CALL = 100
"""Images that are asked for at once."""

_RANGES = {"-1..1": (-1.0, 1.0), "0..1": (0.0, 1.0), "0..255": (0.0, 255.0)}


class Generated(nn.Module):
    """Images from a function, or from a TorchScript module that turns latents into images.

    Args:
        data: what the images must be.
        make: called with n, or with latents (n, Z) from N(0, I); and with the labels (n,), if it is conditional.
        name: of the function, for errors.
        latent: Z; 0: it is called with n.
        conditional: whether it takes labels.
        pixels: the range of what it gives; "model": the bounds of the dataset.
    """

    def __init__(
        self,
        data: DataSpec,
        make: Callable[..., Any],
        name: str,
        *,
        latent: int,
        conditional: bool,
        pixels: Pixels,
    ) -> None:
        super().__init__()
        self.data = data
        self.make = make  # a module's weights are then the model's
        self.name = name
        self.latent = latent
        self.conditional = conditional
        self.range = data.bounds if pixels == "model" else _RANGES[pixels]
        self.takes_generator = _takes_generator(make)

    @torch.no_grad()
    def sample(self, n: int, y: Int[Tensor, " N"] | None = None, *, generator: Generator) -> Float[Tensor, "N C H W"]:
        """n images, on the generator's device.

        Raises:
            SpecError: for labels, if it is not conditional.
            PluginError: if it does not give such images.
        """
        if y is not None and not self.conditional:
            raise SpecError(f"{self.name} makes images without classes. Write conditional=true if it takes labels.")
        if y is None and self.conditional:
            y = torch.randint(self.data.num_classes, (n,), generator=generator, device=generator.device)
        sizes = [min(_A_CALL, n - start) for start in range(0, n, _A_CALL)]
        labels = [None] * len(sizes) if y is None else torch.split(y, sizes)
        parts = [self._call(size, part, generator) for size, part in zip(sizes, labels, strict=True)]
        return self._within_bounds(torch.cat(parts))

    def _call(self, n: int, y: Tensor | None, generator: Generator) -> Tensor:
        device = generator.device
        first = torch.randn((n, self.latent), generator=generator, device=device) if self.latent else n
        keywords = {"generator": generator} if self.takes_generator else {}
        # global randomness that it uses is seeded by this generator too, and the global state is restored
        seed = int(torch.randint(2**62, (), generator=generator, device=device))
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(seed)
            images = self._made(first, *([] if y is None else [y]), **keywords)
        return self._checked(images, n).to(device)

    def _made(self, first: Tensor | int, *labels: Tensor, **keywords: Generator) -> Any:
        try:
            return self.make(first, *labels, **keywords)
        except Exception as error:
            given = f"latents {tuple(first.shape)}" if isinstance(first, Tensor) else f"n = {first}"
            raise PluginError(
                f"{self.name} fails when it is called with {given}{' and labels' if labels else ''}: "
                f"{error_text(error)}. Say what it takes with latent=... and conditional=true or false."
            ) from error

    def _within_bounds(self, images: Tensor) -> Tensor:
        (low, high), (darkest, brightest) = self.data.bounds, self.range
        return ((images - darkest) / (brightest - darkest) * (high - low) + low).clamp(low, high)

    def _checked(self, images: Any, n: int) -> Tensor:
        expected = (n, *self.data.shape)
        shape = tuple(images.shape) if isinstance(images, Tensor) else type(images).__name__
        if shape != expected:
            raise PluginError(
                f"{self.name} gives {shape} when asked for {n} images of {self.data.name}; it must be a tensor "
                f"{expected}."
            )
        pixels: Tensor = images.float()
        low, high = self.range
        slack = 1e-3 * (high - low)
        if not bool(((pixels >= low - slack) & (pixels <= high + slack)).all()):
            raise PluginError(
                f"{self.name} gives pixels from {float(pixels.min()):.3g} to {float(pixels.max()):.3g}, outside of "
                f"{low:g} to {high:g}. Say what they are with pixels=-1..1, 0..1 or 0..255, or clamp them."
            )
        return pixels


def _takes_generator(make: Callable[..., Any]) -> bool:
    try:
        return "generator" in inspect.signature(make).parameters
    except (TypeError, ValueError):  # a TorchScript module has no signature
        return False


def load(text: str) -> Callable[..., Any]:
    """A function by its import path, or the TorchScript module of a file.

    Raises:
        SpecError: if there is no such file, or only a file names it (:mod:`jembench.catalog.trust`).
        PluginError: if it cannot be imported, or is no TorchScript.
    """
    trust.check(text)  # TorchScript is code as well
    if ":" in text and not Path(text).exists():
        found = discovery.load(discovery.find("models", text))
        made: Any = found() if inspect.isclass(found) else found
        return cast(Callable[..., Any], made.eval() if isinstance(made, nn.Module) else made)
    path = Path(text)
    if not path.is_file():
        raise SpecError(
            f"There is no generator {text}. Name a TorchScript file, or a function by its import path: mygan.zoo:make."
        )
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "`torch.jit")  # old generators are TorchScript, whatever is made today
            script: nn.Module = torch.jit.load(str(path), map_location="cpu")  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        raise PluginError(
            f"{path} is no TorchScript module ({str(error).strip().splitlines()[0]}). Save one with "
            "torch.jit.script(generator).save(...), or name a function by its import path."
        ) from error
    return script.eval()
