"""The pages of several stores in one folder, with a leaderboard."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from jembench.api.results import Results
from jembench.catalog.spec import slug
from jembench.errors import SpecError, unknown
from jembench.files import read_bytes, write_atomically
from jembench.report.page.content import Page
from jembench.report.page.render import render
from jembench.report.select import Selection
from jembench.store.store import Store
from jembench.store.walk import verify

_OURS = b'<meta name="generator" content="jembench">'
"""The mark of every page that jembench writes."""


def write_site(
    stores: Sequence[Path], folder: Path, names: Mapping[str, str] = MappingProxyType({})
) -> tuple[list[Path], list[str]]:
    """Write the page of each store, and an index of their models.

    A store with a damaged file or without results is left out. Pages that exist are replaced, each
    atomically.

    Args:
        stores: folders of stores.
        folder: for the pages; made if missing.
        names: display names by specs of models, and headings of columns by metrics or labels. A
            name applies to all stores with such a model or column.

    Returns:
        The files, and a sentence on each store that is left out.

    Raises:
        SpecError: if a store does not exist, two stores have the same page, an existing file is no
            page of jembench, or no store has a model or column of ``names``.
        StoreError: if a page cannot be written.
    """
    from jembench.report.page.leaderboard import Ranked, leaderboard

    index = folder / "index.html"
    pages = _pages(stores, index)

    entries, left_out = list[Ranked](), list[str]()
    results_of_pages = dict[Path, Results]()
    for path, store in pages.items():
        damaged = [finding for finding in verify(store) if finding.status == "damaged"]
        if damaged:
            left_out.append(f"{store.root}: {damaged[0].file} is damaged: {damaged[0].reason}")
            continue
        results = Results.of_store(store, Selection(names=names, some_names=True))
        if not results.cells:
            left_out.append(results.nothing)
            continue
        # the lowest seed comes last, so that a model links to it
        by_seed = sorted(results.cells, key=lambda cell: -cell.fit.seed)
        fits = {cell.fit.names: cell.fit.id for cell in by_seed}
        entries.append(Ranked(str(store.root), path.name, results.document.rows, fits))
        results_of_pages[path] = results

    # each name must apply to at least one store
    shown = set[str]()
    for entry in entries:
        for row in entry.rows:
            shown |= {row.name, row.headed}
    for text, name in names.items():
        if name not in shown:
            raise unknown("model or column in these stores", text, shown, "")

    for path, results in results_of_pages.items():
        page = replace(results.document.page(), index=index.name)
        write_atomically(path, render(page).encode(), "--output")
    page = Page(title="Leaderboard", tables=leaderboard(entries), left_out=left_out)
    write_atomically(index, render(page).encode(), "--output")
    return [index, *(folder / entry.page for entry in entries)], left_out


def _pages(stores: Sequence[Path], index: Path) -> dict[Path, Store]:
    """Return the stores by the files of their pages.

    Raises:
        SpecError: if two pages would have one name, or a page would replace a user's file.
    """
    pages = {index.with_name(f"{slug(str(store), 120)}.html"): Store(store) for store in stores}
    if len({index, *pages}) <= len(stores):
        raise SpecError(
            f"The pages of these stores would have the same name, or that of {index}. Rename a "
            "folder."
        )
    for path in (index, *pages):
        if path.exists() and _OURS not in read_bytes(path):
            raise SpecError(
                f"{path} exists and is no page of jembench. Name another folder with --output."
            )
    return pages
