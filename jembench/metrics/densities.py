"""Metrics of energies and densities, and of the logits that energies follow from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jembench.interfaces import Capability, Quantity
from jembench.metrics.base import Bootstrapped, Comparable


@dataclass(frozen=True, kw_only=True)
class BitsPerDim(Bootstrapped, Comparable):
    """Bits per dimension of the test images under a normalised density; uniform noise costs 8.

    The density is taken at the middle of each 8-bit cell. Papers take its mean over the cell, of images that uniform
    noise was added to (Theis et al., 2016, arXiv:1511.01844), which is never less for a log-concave density: the
    protocol says ``at=cell-middle``.
    """

    name: ClassVar[str] = "bits-per-dim"
    computed_by: ClassVar[str] = "jembench.metrics.energies:bits_per_dim"
    requires: ClassVar[frozenset[Capability]] = frozenset({"log_prob"})
    reads: ClassVar[frozenset[Quantity]] = frozenset({"energy"})


@dataclass(frozen=True, kw_only=True)
class EnergyGap(Bootstrapped, Comparable):
    """Mean energy of the test images minus that of the model's samples, in nats; near 0 is good.

    Below 0 the samples are less likely than the data. The unknown constant of E cancels in the gap; in the two means,
    which the details give, it does not.
    """

    name: ClassVar[str] = "energy-gap"
    computed_by: ClassVar[str] = "jembench.metrics.energies:energy_gap"
    requires: ClassVar[frozenset[Capability]] = frozenset({"energy", "samples"})


@dataclass(frozen=True, kw_only=True)
class LogDensity(Bootstrapped, Comparable):
    """Log p(x) of the test images, in nats: its spread, and how its highest differ from its lowest.

    The two ends are the 100 images of the highest and of the lowest log p(x), or a quarter of the images each if that
    is fewer. ``classes-top`` is the effective number of classes, by label, at the upper end; ``accuracy-top`` and
    ``accuracy-bottom`` the share of images classified rightly at each end, in %; ``auroc-correct`` how well log p(x)
    tells images that are classified rightly (the positive class) from the others. A model that does not classify, or a
    dataset without labels, leaves out what needs them.
    """

    name: ClassVar[str] = "log-density"
    computed_by: ClassVar[str] = "jembench.metrics.energies:log_density"
    requires: ClassVar[frozenset[Capability]] = frozenset({"energy"})
    reads: ClassVar[frozenset[Quantity]] = frozenset({"energy", "logits"})
