"""The pages of several stores in one folder, which any static web server shows as a leaderboard."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jembench.api.results import Results
from jembench.catalog.spec import slug
from jembench.errors import SpecError
from jembench.files import read_bytes, write_atomically
from jembench.report.page.content import Page
from jembench.report.page.render import render
from jembench.report.select import WHOLE
from jembench.store.store import Store
from jembench.store.walk import verify

_OURS = b'<meta name="generator" content="jembench">'
"""A part of every page."""


def write_site(stores: Sequence[Path], folder: Path) -> tuple[list[Path], list[str]]:
    """Write the page of each store, and an index of their models.

    A store with a damaged file or without results is left out. Pages that exist are replaced, each atomically.

    Args:
        stores: their folders.
        folder: of the pages; it is made if it is missing.

    Returns:
        The files, and a sentence on each store that is left out.

    Raises:
        SpecError: if there is no such store, two of them have the same page, or a file that exists is no such page.
        StoreError: if a page cannot be written.
    """
    from jembench.report.page.leaderboard import Entry, leaderboard

    pages = {folder / f"{slug(str(store), 120)}.html": Store(store) for store in stores}
    index, entries, left_out = folder / "index.html", list[Entry](), list[str]()
    if len({index, *pages}) <= len(stores):
        raise SpecError(f"The pages of these stores would have the same name, or that of {index}. Rename a folder.")
    for path in (index, *pages):
        if path.exists() and _OURS not in read_bytes(path):
            raise SpecError(f"{path} exists and is no page of jembench. Name another folder with --output.")
    for path, store in pages.items():
        if damaged := [finding for finding in verify(store) if finding.status == "damaged"]:
            left_out.append(f"{store.root}: {damaged[0].file} is damaged: {damaged[0].reason}")
            continue
        results = Results.of_store(store, WHOLE)
        if not results.cells:
            left_out.append(results.nothing)
            continue
        fits = {cell.fit.names: cell.fit.id for cell in sorted(results.cells, key=lambda cell: -cell.fit.seed)}
        entries.append(Entry(str(store.root), path.name, results.document.rows, fits))
        write_atomically(path, results.table("html").encode(), "--output")
    page = Page(title="Leaderboard", tables=list(leaderboard(entries)), left_out=left_out)
    write_atomically(index, render(page).encode(), "--output")
    return [index, *(folder / entry.page for entry in entries)], left_out
