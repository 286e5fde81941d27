"""The server of a page: this machine alone, one path, nothing but the page."""

import http.client
import threading

import pytest

from jembench.report.page.server import PageServer


@pytest.fixture
def served():
    """A server whose page is its own state, that state, and what was rendered."""
    now, rendered = ["state 1"], []

    def render():
        rendered.append(now[0])
        return f"<p>{now[0]}"

    server = PageServer(0, lambda: now[0], render)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server, now, rendered
    server.shutdown()
    server.server_close()
    thread.join()


def ask(server, method="GET", path="", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=5)
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path or server.path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body


def test_the_page(served):
    answer, body = ask(served[0])
    assert (answer.status, body) == (200, b"<p>state 1")
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"


def test_only_a_change_is_rendered(served):
    server, now, rendered = served
    assert [ask(server)[1], ask(server)[1]] == [b"<p>state 1"] * 2
    now[0] = "state 2"
    assert ask(server)[1] == b"<p>state 2"
    assert rendered == ["state 1", "state 2"]


def test_a_page_that_cannot_be_rendered_is_reported_in_one_line(served, capfd):
    server = served[0]
    server._render = lambda: 1 / 0
    with pytest.raises(http.client.RemoteDisconnected):
        ask(server)
    assert (
        capfd.readouterr().err == "The page cannot be shown: ZeroDivisionError: division by zero\n"
    )
    server._render = lambda: "whole again"
    assert ask(server)[1] == b"whole again"


@pytest.mark.parametrize(
    "path", ["/", "/fit.json", "/../etc/passwd", "/?a", "/%2e%2e/", "*", "/x/"]
)
def test_without_the_token_nothing_is_shown(served, path):
    answer, body = ask(served[0], path=path)
    assert answer.status == 403
    assert b"state" not in body


def test_the_token_stands_in_the_address_and_is_another_one_each_time(served):
    host, token = served[0].url.removeprefix("http://").split("/", 1)
    assert host == f"127.0.0.1:{served[0].server_port}"
    assert len(token) > 40
    with PageServer(0, str, str) as other:
        assert other.path != served[0].path


@pytest.mark.parametrize(
    "host", ["x.example", "127.0.0.1", "", "x.example:80", "127.0.0.1.x.example"]
)
def test_a_foreign_name_is_refused(served, host):
    assert ask(served[0], Host=host)[0].status == 421


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS"])
def test_there_is_no_other_method(served, method):
    assert ask(served[0], method)[0].status == 501


def test_it_listens_to_this_machine_alone(served):
    assert served[0].server_address[0] == "127.0.0.1"
    assert ask(served[0], Host=f"localhost:{served[0].server_port}")[0].status == 200
