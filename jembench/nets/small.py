"""A small residual network for small images and for machines without an accelerator."""

from __future__ import annotations

from jembench.nets.wide_resnet import ResidualNet


class SmallNet(ResidualNet):
    """A first convolution of w channels, then one block in each of the groups of w, 2w and 4w channels.

    With w = 8 it has 19,642 parameters on 1x8x8 images of ten classes.
    """

    def __init__(
        self, channels: int, num_classes: int, *, width: int, norm: str = "none", dropout: float = 0.0
    ) -> None:
        widths = (width, 2 * width, 4 * width)
        super().__init__(channels, num_classes, stem=width, widths=widths, blocks=1, norm=norm, dropout=dropout)
