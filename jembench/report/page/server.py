"""Give out the page of a store on this machine alone, and renew it when the store has changed and a browser asks."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import NamedTuple

LOOPBACK = "127.0.0.1"

_REST = 5.0
"""How long the server rests after it has rendered a page, in times of what that took: a run needs the processor."""


class Shown(NamedTuple):
    """A state of the page."""

    etag: str
    body: bytes


class PageServer(ThreadingHTTPServer):
    """Serves one page, by the method GET, to this machine, under a path that other users of the machine do not know.

    Args:
        port: to listen on; 0: any that is free.
        state: gives the ``ETag`` of what the page would show now.
        render: makes the page of that name.

    Raises:
        OSError: if the port cannot be used.
    """

    daemon_threads = True

    def __init__(self, port: int, state: Callable[[], str], render: Callable[[str], str]) -> None:
        super().__init__((LOOPBACK, port), _Handler)
        self.state, self.render = state, render
        self.path = f"/{secrets.token_urlsafe()}/"
        self.url = f"http://{LOOPBACK}:{self.server_port}{self.path}"
        self.hosts = {f"{name}:{self.server_port}" for name in (LOOPBACK, "localhost")}
        self.asked = Event()
        self.shown = Shown("", b"")

    def renew(self) -> None:
        """Render the page if it would show something else."""
        if (etag := self.state()) != self.shown.etag:
            self.shown = Shown(etag, self.render(etag).encode())

    def serve(self) -> None:
        """Answer until an exception, such as KeyboardInterrupt, comes. Pages are rendered in this thread."""
        Thread(target=self.serve_forever, daemon=True).start()
        try:
            while True:
                self.asked.wait()
                start = time.perf_counter()
                self.renew()
                time.sleep(_REST * (time.perf_counter() - start))
                self.asked.clear()
        finally:
            self.shutdown()


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    timeout = 10.0  # seconds for a client that says nothing
    server_version, sys_version = "jembench", ""

    def do_GET(self) -> None:
        """Answer with the page, or that it is the one that the browser has."""
        if self.headers.get("Host") not in self.server.hosts:  # a foreign name that leads here is an attack
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST)
        elif not secrets.compare_digest(self.path.encode(), self.server.path.encode()):
            self.send_error(HTTPStatus.FORBIDDEN)
        else:
            self.server.asked.set()
            shown = self.server.shown
            is_known = self.headers.get("If-None-Match") == shown.etag
            self._answer(HTTPStatus.NOT_MODIFIED if is_known else HTTPStatus.OK, shown)

    def _answer(self, status: HTTPStatus, shown: Shown) -> None:
        self.send_response(status)
        self.send_header("ETag", shown.etag)
        self.send_header("Cache-Control", "no-cache")
        if status == HTTPStatus.OK:
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(shown.body)))
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("X-Frame-Options", "DENY")
            self.send_header("Cross-Origin-Resource-Policy", "same-origin")
            self.send_header("Referrer-Policy", "no-referrer")
        self.end_headers()
        if status == HTTPStatus.OK:
            self.wfile.write(shown.body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing: the terminal belongs to the user."""
