"""``jembench view``: the page renews itself when the store has something new, and ends at Ctrl-C."""

import re
import signal
import subprocess
import sys

import pytest

from jembench.interfaces import Value
from jembench.store.store import Store


@pytest.fixture
def view(tmp_path, cell):
    """The command on a store with one outcome, and its address."""
    store = Store(tmp_path / "runs")
    store.write_cell(cell(accuracy=Value(90.0, 80.0, 95.0, 9, "%", "higher")), {})
    command = [sys.executable, "-m", "jembench", "view", "--no-browser", "--store", store.root]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        try:
            yield store, process, re.search(r"http://127\.0\.0\.1:\d+/\S+", process.stdout.readline())[0]
        finally:
            process.kill()


def test_a_new_outcome_appears_where_the_reader_is(view, open_page, cell):
    store, process, address = view
    page = open_page(f"{address}#tables")
    page.locator("#tables thead button", has_text="model").click()
    page.get_by_role("searchbox").fill("e")
    store.write_cell(cell("baseline", accuracy=Value(91.0, 80.0, 95.0, 9, "%", "higher")), {})
    page.locator("#tables tbody tr").nth(1).wait_for()
    assert page.locator("#tables tbody th").all_inner_texts() == ["baseline", "jem"]  # sorted, as it was
    assert page.locator("#tables [aria-sort=ascending]").count() == 1
    assert page.locator(".part:visible").get_attribute("id") == "tables"
    assert page.get_by_role("searchbox").input_value() == "e"
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    assert process.stderr.read() == ""
    page.locator(".count", has_text="The server has ended").wait_for()
