"""The server of the page of a store, for this machine alone."""

import secrets
import sys
from collections.abc import Callable, Hashable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any

from jembench.errors import error_text

LOOPBACK = "127.0.0.1"


class PageServer(ThreadingHTTPServer):
    """A server of one page, under a path that other users do not know.

    The server answers only GET. Other users are those of the machine.

    Args:
        port: to listen on; 0: any that is free.
        state: returns a value that changes whenever the page would change.
        render: returns the page as HTML.

    Raises:
        OSError: if the port cannot be used.
    """

    daemon_threads = True

    def __init__(self, port: int, state: Callable[[], Hashable], render: Callable[[], str]) -> None:
        super().__init__((LOOPBACK, port), _Handler)
        self.path = f"/{secrets.token_urlsafe()}/"
        self.url = f"http://{LOOPBACK}:{self.server_port}{self.path}"
        self.hosts = {f"{name}:{self.server_port}" for name in (LOOPBACK, "localhost")}
        self._state, self._render = state, render
        self._rendered: Hashable = object()  # equal to no state
        self._page = b""
        self._one = Lock()  # matplotlib draws in one thread at a time

    def page(self) -> bytes:
        """Return the page, rendered anew if the state has changed."""
        with self._one:
            if (state := self._state()) != self._rendered:
                self._page = self._render().encode()
                self._rendered = state
            return self._page

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report a request that failed in one line; a browser that has left is no failure."""
        error = sys.exception()
        if error and not isinstance(error, ConnectionError):
            sys.stderr.write(f"The page cannot be shown: {error_text(error)}\n")


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    timeout = 10.0  # seconds for a silent client
    server_version, sys_version = "jembench", ""

    def do_GET(self) -> None:
        """Answer with the page."""
        # a foreign host name is an attack by DNS rebinding
        if self.headers.get("Host") not in self.server.hosts:
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST)
            return
        if not secrets.compare_digest(self.path.encode(), self.server.path.encode()):
            self.send_error(HTTPStatus.FORBIDDEN)
            return
        page = self.server.page()
        self.send_response(HTTPStatus.OK)
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(page)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Referrer-Policy", "no-referrer")
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, format: str, *arguments: object) -> None:
        """Print nothing, to leave the terminal to the user."""
