"""``jembench view``: the page of a store in a browser, also while a run goes on."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import click

from jembench import stopping
from jembench.api.watching import Watched
from jembench.cli import options
from jembench.errors import SpecError
from jembench.report.page.server import PageServer
from jembench.report.selection import Selection
from jembench.store.store import Store

EXAMPLES = options.examples("jembench view", "jembench view hybrid --no-browser --port 8000")


@click.command("view", epilog=EXAMPLES)
@options.selected
@options.store
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port to listen on; 0: any that is free.")
@click.option("--no-browser", is_flag=True, help="Print the address and open no browser.")
def view(which: Selection, store: Path, port: int, no_browser: bool) -> int:
    """Show a store in a browser, while a run goes on too.

    Serves the page of `jembench report --format html` to this machine alone, with what is being done just now, and
    renews it when the store has changed. Ctrl-C ends it.
    """
    watched = Watched(Store(store), which)
    try:
        server = PageServer(port, watched.state, watched.page)
    except OSError as error:
        raise SpecError(
            f"Port {port} cannot be used: {error.strerror}. Name another with --port, or leave it out."
        ) from error
    with server:
        server.renew()
        click.echo(f"{store} is shown at {server.url} until Ctrl-C.")
        if not no_browser:
            webbrowser.open(server.url)
        try:
            server.serve()
        except (KeyboardInterrupt, stopping.Stopped):  # there is nothing to go on with
            click.echo()
    return 0
