"""The comparison of two models of a store, from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from jembench.api.arguments import checked, one_text, selection, some_texts
from jembench.api.check import Check
from jembench.api.live import model_spec
from jembench.api.results import Shown
from jembench.api.stored import Location, OpenStore, opened
from jembench.errors import SpecError
from jembench.report.rows import rows
from jembench.report.select import as_measured, find_pair, select

if TYPE_CHECKING:
    from torch import nn

    from jembench.report.differences import Comparison as ComparedPair


class Comparison(Shown):
    """The comparison of two models of a store, returned by :func:`jembench.compare`.

    Attributes:
        found: the differences, with both kinds of intervals
            (:class:`jembench.report.differences.Comparison`).
        records: a mapping for each value.
    """

    def __init__(self, found: ComparedPair) -> None:
        # imports numpy, which tables of results do not need
        from jembench.report import differences

        self.found = found
        self.document = differences.of_comparison(found)
        self.records = list(self.document.records())

    @checked
    def check(
        self, *, tolerance: Mapping[str, float] = MappingProxyType({}), strict: bool = False
    ) -> Check:
        """Return whether the first model is worse than the second.

        Args:
            tolerance: as for :func:`jembench.check`.
            strict: as for :func:`jembench.check`.

        Raises:
            SpecError: if a text of ``tolerance`` names no column.

        Example:
            >>> compare(name, other, store=store).check(tolerance={"accuracy": 99, "ece": 99})
            <Check: 2 passed. The exit code is 0.>
        """
        from jembench.report import gate

        labels = (row.label for row in self.found.rows)
        rows = gate.judged(self.found.rows, gate.tolerances(tolerance, labels))
        sides = self.found.names
        return Check(gate.document(rows, sides=sides, tolerance=tolerance, strict=strict))

    def __repr__(self) -> str:
        return f"<Comparison of {' and '.join(self.found.names)}: {len(self.records)} values>"


@checked
def compare(
    a: str | nn.Module,
    b: str | nn.Module,
    *,
    store: Location | OpenStore = "runs",
    dataset: str | None = None,
    recipe: str | None = None,
    recipe_b: str | None = None,
    metrics: str | Sequence[str] | None = None,
    columns: str | Sequence[str] | None = None,
    resamples: int = 10_000,
    **selected: Any,
) -> Comparison:
    """Compare two models of a store, by images and by seeds.

    The result has differences and their significance.

    Nothing is trained or evaluated. Two sources of randomness are kept apart: other test images (a
    paired bootstrap, McNemar's test for accuracy) and training again with other seeds (Student's
    t). P values are adjusted by Holm.

    Args:
        a: a model as tables show it, or its name if that is unique.
        b: the other model; the differences are a - b.
        store: that has both models' results.
        dataset: of both models; None: the dataset that they share.
        recipe: both models' recipe label; None: the recipe that they share.
        recipe_b: b's recipe label, if it differs.
        metrics: to compare; columns as for :func:`selection`.
        resamples: of the bootstrap; no p value is below 1 / (resamples + 1).
        selected: seeds, names and limit, as for :func:`selection`.

    Raises:
        SpecError: if the store has no such models, or the arguments select more than one pair.

    Example:
        >>> [record["label"] for record in compare(name, other, store=store, resamples=100).records]
        ['accuracy', 'ece']
    """
    from jembench.report.differences import compare as compared

    place = opened(store).store
    which = selection(**selected)
    cells, _, shown_names, _ = which.of(place)
    if not cells:
        raise SpecError(which.nothing(place.root))
    on = one_text(dataset, "dataset")
    for name in as_measured([on] if on else [], cells):
        on = name
    fits = dict.fromkeys(cell.fit.names for cell in cells)
    fit_a, fit_b = find_pair(
        list(fits),
        model_spec(a),
        model_spec(b),
        dataset=on,
        recipe=one_text(recipe, "recipe"),
        recipe_b=recipe_b,
        names=shown_names,
    )
    cells = [cell for cell in cells if cell.fit.names in (fit_a, fit_b)]
    cells = selection(metrics=metrics).among(cells)
    labels = some_texts(columns, "columns")
    values = select("column", labels, rows(cells, shown_names), lambda row: row.column)
    of_a = [row for row in values if row.fit == fit_a]
    of_b = [row for row in values if row.fit == fit_b]
    return Comparison(compared(of_a, of_b, place.read_arrays, resamples))
