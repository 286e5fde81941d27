"""Results from Python: rows, data frames, tables and notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from jembench.api.arguments import checked
from jembench.errors import Unavailable
from jembench.experiment.names import NO_NAMES, DisplayNames
from jembench.experiment.plan import Part
from jembench.experiment.stored import with_imports
from jembench.experiment.suite import Suite
from jembench.report import formats
from jembench.report.formats import Document
from jembench.report.layout import PerSeed, Report
from jembench.report.page.content import collect
from jembench.report.published import Published, published_numbers
from jembench.report.rows import Row
from jembench.report.select import WHOLE, Selection
from jembench.store.outcome import Cell
from jembench.store.store import Store

if TYPE_CHECKING:
    from pandas import DataFrame


class Shown:
    """A document with tables for terminals, files and notebooks."""

    document: Document

    @checked
    def table(self, format: str = "table") -> Any:
        """Return the tables as text, or as bytes in binary formats.

        Args:
            format: ``table`` for a terminal, markdown, latex, csv, json, html (a whole page), or
                the name or import path of another format (``jembench list formats``).

        Raises:
            SpecError: if there is no such format.

        Example:
            >>> results.table("csv").splitlines()[0].split(",")[:3]
            ['model', 'name', 'dataset']
        """
        return formats.render(self.document, format)

    def to_dataframe(self) -> DataFrame:
        """Return the rows of the format ``csv`` as a ``pandas.DataFrame``.

        Published numbers are left out.

        Raises:
            Unavailable: if pandas is not installed.

        Example:
            >>> results.per_seed().to_dataframe()[["seed", "label"]].values.tolist()[:3]
            [[0, 'accuracy'], [0, 'ece'], [1, 'accuracy']]
        """
        try:
            from pandas import DataFrame
        except ImportError as error:
            raise Unavailable(
                f"A data frame needs pandas, which cannot be imported ({error}). Install it: pip "
                'install "jembench[pandas]"'
            ) from error
        return DataFrame([row for row in self.document.records() if not row.get("source")])

    def __str__(self) -> str:
        return str(self.table())

    def _repr_markdown_(self) -> str:
        """Return the tables as Markdown, for notebooks."""
        return formats.markdown(self.document)


class Results(Shown, Sequence[Row]):
    """The results of a run, an attack or a store.

    Each row is a value of a model, the mean over the model's seeds.

    Attributes:
        cells: the outcomes, one for each fit and metric, with protocol and provenance.
        stopped: the reason why a run ended early; None otherwise.
        nothing: a sentence that says that the store has no such results; else empty.
        left_out: sentences on results of the store that are not shown.
    """

    stopped: BaseException | None = None
    nothing: str = ""
    left_out: Sequence[str] = ()

    def __init__(
        self,
        cells: Sequence[Cell],
        parts: Sequence[Part] = (),
        published: Sequence[Published] = (),
        *,
        suite: Suite | None = None,
        selection: Selection = WHOLE,
        names: DisplayNames = NO_NAMES,
        store: Store | None = None,
    ) -> None:
        self.cells = tuple(cells)
        suite = suite or Suite(name="", title="Results")
        read = page = None
        if store:
            title = f"{suite.title} · {store.root}"
            read = store.read_arrays
            page = partial(collect, store=store, title=title, own_claims=suite.claims)
        self.document: Report = Report(
            self.cells,
            parts=parts,
            published=published,
            selection=selection,
            names=names,
            joint=suite.joint,
            read=read,
            page=page,
        )

    @classmethod
    def of_store(
        cls, store: Store, which: Selection, reference: Sequence[str] | None = None
    ) -> Results:
        """Return selected results of a store, in tables.

        The tables are those of a suite or, without a suite, of each kind of metric.

        Args:
            store: the store.
            which: the selection.
            reference: published tables to show beside the results; None: the suite's.
        """
        suite, references = None, tuple[str, ...]()
        if which.suite:
            suite = with_imports(which.suite, store)
            references = suite.references
        cells, parts, names, left_out = which.of(store)
        published = published_numbers(reference, references, which.split)
        results = cls(
            cells, parts, published, suite=suite, selection=which, names=names, store=store
        )
        if not cells:
            results.nothing = which.nothing(store.root)
        results.left_out = list(left_out)
        return results

    def per_seed(self) -> Shown:
        """Return each seed's values, for csv, json and parquet.

        Example:
            >>> results.per_seed().table("csv").splitlines()[0].split(",")[-9:-2]
            ['seed', 'limit', 'split', 'fit', 'cell', 'time', 'seconds']
        """
        shown = Shown()
        shown.document = PerSeed(self.document)
        return shown

    def __getitem__(self, index: Any) -> Any:
        return self.document.rows[index]

    def __len__(self) -> int:
        return len(self.document.rows)

    def __repr__(self) -> str:
        models = len({cell.fit.names for cell in self.cells})
        return f"<Results: {len(self)} rows of {models} models>"
