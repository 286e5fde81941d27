"""``jembench view``: the page of a store in a browser."""

import webbrowser
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import click

from jembench import stopping
from jembench.api.arguments import selection
from jembench.api.results import Results
from jembench.cli import options
from jembench.cli.output import plugins_aside
from jembench.errors import SpecError
from jembench.report.page.render import render
from jembench.report.page.server import PageServer
from jembench.store.store import Store

EXAMPLES = options.examples("jembench view", "jembench view hybrid --no-browser --port 8000 --refresh 30")


@click.command("view", epilog=EXAMPLES)
@options.selected
@options.store
@click.option("--port", type=click.IntRange(0, 65535), metavar="PORT", default=0, help="Port to use; 0 is a free one.")
@click.option("--refresh", type=click.IntRange(1), metavar="SECONDS", help="Load the page again every SECONDS seconds.")
@click.option("--no-browser", is_flag=True, help="Print the address and open no browser.")
def view(store: Path, port: int, refresh: int | None, no_browser: bool, **selected: Any) -> int:
    """Show a store in a browser.

    Serves the page of `jembench report --format html` to this machine alone. A reload shows the results that a run has
    added since; `jembench status` shows what it is doing. Ctrl-C ends the command.
    """
    place = Store(store)
    with plugins_aside():
        which = selection(**selected)

    def state() -> Hashable:
        cells = place.root / "cells"  # each write changes the folder
        return cells.stat().st_mtime_ns if cells.exists() else None

    def page() -> str:
        return render(Results.of_store(place, which).document.page(), refresh)

    try:
        server = PageServer(port, state, page)
    except OSError as error:
        raise SpecError(
            f"Port {port} cannot be used: {error.strerror}. Name another with --port, or leave it out."
        ) from error
    with server:
        server.page()  # an error of the store is the command's
        click.echo(f"{store} is shown at {server.url} until Ctrl-C.")
        if not no_browser:
            webbrowser.open(server.url)
        try:
            server.serve_forever()
        except (KeyboardInterrupt, stopping.Stopped):  # there is nothing to go on with
            click.echo()
    return 0
