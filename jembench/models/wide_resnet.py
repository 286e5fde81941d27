"""Wide residual networks as joint energy-based models use them.

Pre-activation blocks, LeakyReLU, a bias on every convolution, the stride on the *second*
convolution of a block, and no normalisation unless asked for. Zagoruyko & Komodakis (2016),
arXiv:1605.07146, table 1; the departures are those of Grathwohl et al. (2020), arXiv:1912.03263,
appendix A, and of their published weights.

Legend: B batch, C channels, H height, W width, K classes.
"""

from collections.abc import Callable
from typing import NamedTuple, cast

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from jembench.errors import SpecError
from jembench.models.execution import in_full

LEAK = 0.2
"""The slope of every LeakyReLU below 0."""

MOMENTUM = 0.9
"""The share that a batch has in the running statistics of batch norm, as in the code of JEM, JEM++
and SADA-JEM.
"""


class Shape(NamedTuple):
    """The channels and blocks of a residual network.

    ``stem`` and ``widths`` are the channels of the first convolution and of the three groups, and
    ``blocks`` the blocks of a group.
    """

    stem: int
    widths: tuple[int, int, int]
    blocks: int
    stride: int = 1  # of the first convolution: 2 halves the image


Norm = Callable[[int], nn.Module]
"""The function from the number of channels to a normalisation layer."""


class Block(nn.Module):
    """Two 3x3 convolutions, each after norm and activation, added to the block's raw input.

    Where the shape changes, the raw input passes through a bare 1x1 convolution of every
    ``stride``-th pixel. Dropout stands between the convolutions (Zagoruyko & Komodakis, section
    2.4), before the second norm as in the code of JEM.
    """

    def __init__(
        self, in_channels: int, out_channels: int, stride: int, norm: Norm, dropout: float
    ) -> None:
        super().__init__()
        self.norm1 = norm(in_channels)
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, padding=1)
        self.norm2 = norm(out_channels)
        self.dropout = nn.Dropout(dropout)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, stride=stride, padding=1)
        self.stride = stride
        self.shortcut = nn.Sequential()
        if stride != 1 or in_channels != out_channels:
            self.shortcut.append(nn.Conv2d(in_channels, out_channels, 1))

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B D h w"]:
        hidden = self.dropout(self.conv1(F.leaky_relu(self.norm1(x), LEAK)))
        # in place: no backward pass reads the output of a convolution, dropout or a norm
        hidden = self.conv2(F.leaky_relu_(self.norm2(hidden), LEAK))
        if self.stride > 1:
            # not a stride of the 1x1 convolution, whose weight gradient PyTorch 2.14 and 2.15 write
            # past its memory on CPUs, in the channels-last layout, where it has few channels
            # (oneDNN issue 6035); not a slice, whose gradient is contiguous, so that all earlier
            # layers would convert their gradients
            x = F.avg_pool2d(x, 1, self.stride)
        return cast(Tensor, hidden.add_(self.shortcut(x)))


class ResidualNet(nn.Module):
    """A residual network: a convolution, three groups of blocks, mean pooling, a head.

    Groups are at full, half and quarter size, and the head is linear.

    With a stride of s > 1, the first convolution is 2s x 2s and divides all these sizes by s.

    Images may have any size, since pooling is over the whole map. The initialisation is PyTorch's
    default. Pooling and the head compute in float32 under autocast too.

    Args:
        channels: C of the images.
        num_classes: K.
        shape: of the network.
        norm: none, batch, instance or layer (group norm of one group).
        dropout: the share of a block's maps that is dropped while the model is trained, in [0, 1).
        momentum: of the running statistics of batch norm: the share of the latest batch, in (0, 1].

    Raises:
        SpecError: if there is no such norm, or dropout or momentum is out of range.
    """

    def __init__(
        self,
        channels: int,
        num_classes: int,
        shape: Shape,
        *,
        norm: str = "none",
        dropout: float = 0.0,
        momentum: float = MOMENTUM,
    ) -> None:
        super().__init__()
        if not (0 <= dropout < 1 and 0 < momentum <= 1):
            raise SpecError(
                f"dropout is {dropout} and momentum {momentum}; they must be shares in [0, 1) and "
                "(0, 1]."
            )
        norms: dict[str, Norm] = {
            "none": lambda channels: nn.Identity(),
            "batch": lambda channels: nn.BatchNorm2d(channels, momentum=momentum),
            "instance": lambda channels: nn.InstanceNorm2d(channels, affine=True),
            "layer": lambda channels: nn.GroupNorm(1, channels),
        }
        if norm not in norms:
            raise SpecError(f"There is no norm named {norm!r}. Write one of {', '.join(norms)}.")
        make_norm = norms[norm]
        stem, widths, blocks, stride = shape
        kernel, padding = 3, 1
        if stride > 1:
            # every pixel contributes to equally many outputs
            kernel, padding = 2 * stride, stride // 2
        self.conv1 = nn.Conv2d(channels, stem, kernel, stride=stride, padding=padding)
        groups, inside = [], stem
        for width, step in zip(widths, (1, 2, 2), strict=True):
            # the first block changes the shape, the others keep it
            first = Block(inside, width, step, make_norm, dropout)
            others = (Block(width, width, 1, make_norm, dropout) for _ in range(blocks - 1))
            groups.append(nn.Sequential(first, *others))
            inside = width
        self.layer1, self.layer2, self.layer3 = groups
        self.norm = make_norm(inside)
        self.class_output = nn.Linear(inside, num_classes)

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B K"]:
        """Return f(x)."""
        hidden = self.layer3(self.layer2(self.layer1(self.conv1(x))))
        hidden = F.leaky_relu_(self.norm(hidden), LEAK)
        pooled = hidden.mean(dim=(2, 3), dtype=self.class_output.weight.dtype)
        return in_full(self.class_output, pooled)
