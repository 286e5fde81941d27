"""Which of a model's images are scored: the options that all metrics of generated images share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jembench.catalog.spec import Scalar, format_value
from jembench.errors import NotApplicable, SpecError
from jembench.interfaces import Capability, Source

_POOLING = {"one": "one-buffer", "five": "five-buffers", "mean": "mean-of-five-buffers"}


@dataclass(frozen=True, kw_only=True)
class SampleProtocol:
    """Where the images come from, and which of them are kept.

    The Inception score of one model ranges from 5 to 22 by how many are kept alone (the reproducibility report on JEM,
    Table 4). The 10 % of the highest p(y|x), and buffers of five epochs lumped together, are those of Grathwohl et al.
    (2020), Table 5.

    Raises:
        SpecError: for options that have no meaning, or would have no effect.
    """

    source: Literal["kept", "fresh"] = "kept"  # what the model keeps or draws without a chain; the ends of new chains
    steps: int | None = None  # of new chains; None: as many as in training
    images: int | None = None  # of new chains, before selection; None: 1,000
    conditional: bool | None = None  # new chains on E(x, y), each class as often; None: as the model was trained
    pooling: Literal["one", "five", "mean"] = "one"  # one buffer, those of five epochs, or their pixels' mean
    # whose confidence max_y p(y|x) decides which are kept; or, for ``density``, the model's log p(x)
    selection: Literal["none", "model", "features", "density"] = "none"
    per_class: bool = False  # keep as many of each class that the selecting network sees
    top: float = 1.0  # how many are kept: a share of all in (0, 1], or a whole number above 1

    def __post_init__(self) -> None:
        _check_chains(self)
        _check_selection(self)

    @property
    def wanted(self) -> Source:
        """What to ask an evaluation for."""
        return Source(
            chains=self.source,
            steps=self.steps,
            images=self.images,
            conditional=self.conditional,
            pooling=self.pooling,
        )

    @property
    def requires(self) -> frozenset[Capability]:
        """What a model must be able to do."""
        of_selection: dict[str, tuple[Capability, ...]] = {"model": ("logits",), "density": ("logits", "energy")}
        return frozenset(("samples", *of_selection.get(self.selection, ())))

    def count(self, n: int) -> int:
        """How many of n images are kept.

        Raises:
            NotApplicable: if there are fewer.
        """
        count = int(self.top) if self.top > 1 else max(1, round(self.top * n))
        if count > n:
            raise NotApplicable(f"The {count} most confident images cannot be kept of {n}. Lower top.")
        return count

    def parts(self, kept: int, drawn: int, source: str) -> dict[str, Scalar]:
        """What an id must say of ``kept`` images that were chosen among ``drawn``, which came from ``source``."""
        said: dict[str, Scalar] = {"images": kept, "source": source}
        said |= {"pooling": _POOLING[self.pooling], "selection": self.selection}
        if self.selection != "none":
            said |= {"per_class": self.per_class, "top": f"{kept}/{drawn}"}
        return said


def _check_chains(asked: SampleProtocol) -> None:
    of_new = {name: getattr(asked, name) for name in ("steps", "images", "conditional")}
    for name, value in of_new.items():
        if value is None:
            continue
        if asked.source != "fresh":
            raise SpecError(
                f"{name}={format_value(value)} says how new chains are run, and source={asked.source} runs none. Add "
                f"source=fresh, or leave {name} out."
            )
        if name != "conditional" and value < 1:
            raise SpecError(f"{name} of new chains is {value}; it must be at least 1.")
    if asked.source == "fresh" and asked.pooling != "one":
        raise SpecError(
            f"pooling={asked.pooling} is of the chains that training kept, and source=fresh runs new ones. Leave one "
            "of the two out."
        )


def _check_selection(asked: SampleProtocol) -> None:
    top = format_value(asked.top)
    if not (0 < asked.top <= 1 or (asked.top > 1 and asked.top % 1 == 0)):
        raise SpecError(
            f"top is {top}; it must be a share of the images above 0 and up to 1, such as 0.1, or a whole number of "
            "them above 1, such as 1000."
        )
    selecting = asked.selection != "none"
    if asked.per_class and not selecting:
        raise SpecError("per_class=true keeps the most confident of each class: say whose confidence, selection=model.")
    if asked.top != 1 and not selecting:
        raise SpecError(f"top={top} keeps the most confident images: say whose confidence, such as selection=model.")
    if asked.top == 1 and selecting:
        raise SpecError(
            f"selection={asked.selection} keeps the most confident images: say how many, for example top=0.1 for a "
            "tenth of them."
        )


ALL_KEPT = SampleProtocol()
"""Every image that the model keeps, or draws without a chain."""


def require_images(n: int | None, needed: int, what: str, metric: str, because: str) -> None:
    """Refuse a metric for which there are too few images; None: it is not known how many.

    Raises:
        NotApplicable: with what the metric needs, and why.
    """
    if n is not None and n < needed:
        raise NotApplicable(
            f"{metric} needs at least {needed} {what}, {because}; there are {n}. Generate more images, or lift the "
            "limit on the dataset."
        )
