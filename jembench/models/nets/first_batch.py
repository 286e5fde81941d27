"""What is done once, with the first batch that a network is trained on."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class FirstBatch(nn.Module):
    """Whether the first batch is still to come.

    It is part of the network's state, so that a loaded network is not set anew, and it is known to the host as well, so
    that asking for it never waits for the device.
    """

    over: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("over", torch.tensor(False))
        self.is_to_come = True
        self.register_load_state_dict_post_hook(_know)  # type: ignore[no-untyped-call]

    def end(self) -> None:
        """It was seen."""
        self.over.fill_(True)
        self.is_to_come = False


def _know(first: Any, _: Any) -> None:
    first.is_to_come = not bool(first.over)
