"""Norms and sizes of changes of images in [0, 1].

8/255 is eight levels, whatever ``DataSpec.bounds`` are.
"""

import math
from fractions import Fraction
from typing import Literal

from jembench.errors import SpecError

Norm = Literal["linf", "l2"]


UNIT = (0.0, 1.0)
"""The range of the pixels that attacks change."""


def parse_eps(text: str) -> float:
    """Read ``8/255``, ``0.5`` or ``.03`` as a number above 0.

    Raises:
        SpecError: if the text is no such number.
    """
    try:
        eps = float(Fraction(text.replace(" ", "")) if "/" in text else text)
    except (ValueError, ZeroDivisionError):
        eps = math.nan
    if not 0 < eps < math.inf:
        raise SpecError(
            f"eps is {text!r}; it must be a number above 0 in units of a pixel's range: 8/255 or "
            "0.5."
        )
    return eps


def largest_distance(norm: Norm, dimensions: int) -> float:
    """Return the largest distance of two images: black to white.

    ``dimensions`` is pixels times channels.
    """
    if norm == "linf":
        return 1.0
    return math.sqrt(dimensions)


def rounding(norm: Norm, dimensions: int) -> float:
    """Return the largest rounding error of a distance in float32.

    Each pixel of both images is rounded by at most 2^-25; in L-inf the error is 1.5e-5 levels of
    255.
    """
    return 2**-24 * largest_distance(norm, dimensions)


def check_eps(text: str, norm: Norm, dimensions: int) -> None:
    """Check that eps is not larger than the largest distance of two images.

    Raises:
        SpecError: if it is larger.
    """
    largest = largest_distance(norm, dimensions)
    if parse_eps(text) > largest:
        raise SpecError(
            f"eps is {text}, and no two images of {dimensions} numbers in [0, 1] are farther "
            f"apart than {largest:.4g} in {norm}. Sizes are in units of a pixel's range: write "
            "8/255 for eight levels of 255."
        )
