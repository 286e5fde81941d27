"""Results from Python: tidy records, as a data frame, as a table and in a notebook."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jembench.errors import Unavailable
from jembench.experiment.plan import Part, parts_of
from jembench.experiment.suite import Suite
from jembench.report import formats, layout, sections
from jembench.report.formats import Document
from jembench.report.record import Record
from jembench.report.references import PublishedTable
from jembench.store.outcome import Cell

if TYPE_CHECKING:
    from pandas import DataFrame

    from jembench.report.comparison import Comparison as ComparedPair


class Shown:
    """What can be shown as tables: for people, for programs and in a notebook."""

    document: Document

    def table(self, format: str = "table") -> str:
        """The tables as text.

        Args:
            format: ``table`` for a terminal, markdown, latex, csv, json, html, or the name or import path of another
                format (``jembench list formats``).

        Raises:
            SpecError: if there is no such format.

        Example:
            >>> results.table("csv").splitlines()[0].split(",")[:3]
            ['kind', 'model', 'printed_as']
        """
        return formats.render(self.document, format)

    def __str__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return self.table("html")


class Results(Shown, Sequence[Record]):
    """The results of a run, an attack or a store: one record for each value of each model, over its seeds.

    Attributes:
        cells: the outcomes that they were made of, one for each fit and metric, with protocol and provenance.
    """

    def __init__(
        self,
        cells: Sequence[Cell],
        parts: Sequence[Part] = (),
        published: Sequence[PublishedTable] = (),
    ) -> None:
        self.cells = tuple(cells)
        self._parts = parts
        self._sections = sections.build(cells, parts=parts, published=published)
        self._records = _records(self._sections)
        self.document = layout.document(self._sections)

    @classmethod
    def of_suite(cls, cells: Sequence[Cell], suite: Suite | None, published: Sequence[PublishedTable]) -> Results:
        """Some results of a store, in the tables of a suite; None: in one table a dataset."""
        if suite is None:
            return cls(cells, [sections.everything(cells)], published)
        return cls(cells, parts_of(suite, [cell.fit for cell in cells]), published)

    def __getitem__(self, index: Any) -> Any:
        return self._records[index]

    def __len__(self) -> int:
        return len(self._records)

    def __repr__(self) -> str:
        models = len({(cell.fit.model, cell.fit.dataset, cell.fit.recipe) for cell in self.cells})
        return f"<Results: {len(self)} records of {models} models>"

    def per_seed(self) -> list[Record]:
        """The records of each seed by itself."""
        seeds = sorted({cell.fit.seed for cell in self.cells})
        of_seeds = ([cell for cell in self.cells if cell.fit.seed == seed] for seed in seeds)
        return [record for cells in of_seeds for record in _records(sections.build(cells, parts=self._parts))]

    def to_dataframe(self, *, per_seed: bool = False) -> DataFrame:
        """The records as a ``pandas.DataFrame``, a row each.

        Args:
            per_seed: a row for each seed, whose number is in the column ``seed``, instead of one over all seeds.

        Raises:
            Unavailable: if pandas is not installed.

        Example:
            >>> results.to_dataframe(per_seed=True)[["seed", "label"]].values.tolist()[:3]
            [[0, 'accuracy'], [0, 'ece'], [0, 'accuracy']]
        """
        rows = [dataclasses.asdict(record) for record in (self.per_seed() if per_seed else self)]
        if per_seed:
            rows = [{**row, "seed": row["seeds"][0] if row["seeds"] else None} for row in rows]
        return _dataframe(rows)


class Comparison(Shown):
    """Two models of a store side by side, as :func:`jembench.compare` gives it.

    Attributes:
        found: the differences, with both kinds of intervals (:class:`jembench.report.comparison.Comparison`).
        records: one for each value that was compared, as a mapping.
    """

    def __init__(self, found: ComparedPair) -> None:
        from jembench.report import verdicts  # imports numpy, which tables of results need not

        self.found = found
        self.document = verdicts.of_comparison(found)
        self.records = list(self.document.records())

    def __repr__(self) -> str:
        return f"<Comparison of {' and '.join(self.found.pair.names)}: {len(self.records)} values>"

    def to_dataframe(self) -> DataFrame:
        """The records as a ``pandas.DataFrame``.

        Raises:
            Unavailable: if pandas is not installed.
        """
        return _dataframe(self.records)


def _records(shown: sections.Report) -> list[Record]:
    return [record for row in shown.rows for record in row.records.values()]


def _dataframe(rows: Iterable[Mapping[str, Any]]) -> DataFrame:
    try:
        from pandas import DataFrame
    except ImportError as error:
        raise Unavailable(
            f'A data frame needs pandas, which cannot be imported ({error}). Install it: pip install "jembench[pandas]"'
        ) from error
    return DataFrame(list(rows))
