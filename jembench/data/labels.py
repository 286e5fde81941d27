"""The check of labels, for every source of a user's own images."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from jembench.errors import SpecError
from jembench.interfaces import SplitName

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor


def check_labels(
    what: str,
    labels: Mapping[SplitName, "Tensor | np.ndarray | None"],
    stated: int | None = None,
) -> int:
    """Check that labels number the classes from 0, and that training knows all classes of the test.

    Args:
        what: the data, for messages.
        labels: int64 (N,) of each part; None: the part is unlabelled.
        stated: the number of classes, of which some may have no images; None: every class has
            images.

    Returns:
        the number of classes; 0: there are no labels.

    Raises:
        SpecError: if a label is no class, or is unknown to training; the message says the remedy.
    """
    values: dict[SplitName, list[int]] = {}
    for name, numbers in labels.items():
        if numbers is not None:
            values[name] = sorted(set(numbers.tolist()))
    if stated is not None:
        for name, present in values.items():
            if present and not 0 <= present[0] <= present[-1] < stated:
                raise SpecError(
                    f"The labels of {name} of {what} go from {present[0]} to {present[-1]}; of "
                    f"{stated} classes they must be whole numbers from 0 to {stated - 1}."
                )
        return stated
    if not values:
        return 0
    first: SplitName = "train" if "train" in values else "test"
    classes = values[first]
    if classes != list(range(len(classes))):
        remedy = "labels = np.unique(labels, return_inverse=True)[1], of train and test together"
        if classes[0] == 1 and classes[-1] == len(classes):
            remedy = "labels = labels - 1"
        raise SpecError(
            f"The labels of {first} of {what} are {_listed(classes)}; they must number the classes "
            "from 0 without a gap, or each missing number would count as a class. Write "
            f"{remedy}, or add images of the missing classes."
        )
    if new := sorted(set(values.get("test", ())) - set(classes)):
        raise SpecError(
            f"No image of train of {what} has the labels {_listed(new)} of test, so that no model "
            "can know these classes. Remove these images of test, or add such images to train."
        )
    return len(classes)


def _listed(values: list[int]) -> str:
    """Return the first values and the last one as text."""
    shown = list(map(str, values[:6]))
    if len(values) > 7:
        shown.append("...")
    if len(values) > 6:
        shown.append(str(values[-1]))
    return ", ".join(shown)
