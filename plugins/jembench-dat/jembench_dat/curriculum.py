"""DAT's curriculum: chains grow while training tells their ends from data.

Legend: B data or samples of a batch.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from jembench.interfaces import Energies
from jembench.parts import ShortRun


def auroc(energies: Energies) -> Tensor:
    """Return the AUROC by which energies tell samples from training images, ().

    It is the share of pairs of an image and a sample in which the sample's energy is higher; a tie
    counts as one half.
    """
    above = energies.samples[:, None] - energies.data[None]
    return (above.sign() / 2 + 0.5).mean()


class Curriculum(ShortRun):
    """Chains from new starts that grow with the AUROC of training.

    Chains become one step longer after each window in which the mean AUROC reached a threshold.

    The sum of the AUROCs lies on the device of training until the window has ended.

    Args:
        first: the chains at the beginning of training.
        auroc: the threshold, 0 to 1.
        most: the largest number of steps.
    """

    def __init__(self, first: ShortRun, *, auroc: float, most: int) -> None:
        self.langevin = first.langevin
        self.starts = first.starts
        self.threshold, self.most = auroc, most
        self._steps = first.steps
        self._seen = torch.zeros(2)  # the sum of the AUROCs in this window, and their number

    @property
    def steps(self) -> int:
        """The present length of a chain."""
        return self._steps

    def observe(self, energies: Energies) -> None:
        """Add the AUROC of an iteration."""
        seen = auroc(energies)
        self._seen = self._seen.to(seen.device)
        self._seen += torch.stack([seen, torch.ones_like(seen)])

    def adapt(self) -> None:
        """Add a step if the window's mean AUROC reached the threshold."""
        total, count = self._seen.tolist()
        if count and total / count >= self.threshold:
            self._steps = min(self._steps + 1, self.most)
        self._seen.zero_()

    def state_dict(self) -> dict[str, Tensor]:
        """Return the steps, and the window's sum and number of AUROCs."""
        return {"steps": torch.tensor(self._steps), "seen": self._seen}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore a curriculum that :meth:`state_dict` returned."""
        self._steps = int(state["steps"])
        device = self._seen.device
        self._seen = state["seen"].to(device, copy=True)
