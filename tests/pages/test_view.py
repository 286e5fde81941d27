"""``jembench view``: a reload shows what the store has gained, and Ctrl-C ends the command."""

import re
import signal
import subprocess
import sys

import pytest

from jembench.interfaces import Value
from jembench.store.store import Store


def interruptible():
    """Answer SIGINT, which a shell's background jobs ignore, as the tests may be one."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def view(tmp_path, cell):
    """The command on a store with one outcome, and its address."""
    store = Store(tmp_path / "runs")
    store.write_cell(cell(accuracy=Value(90.0, 80.0, 95.0, 9, "%", "higher")), {})
    command = [
        sys.executable,
        "-m",
        "jembench",
        "view",
        "--no-browser",
        "--refresh",
        "2",
        "--store",
        store.root,
    ]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, preexec_fn=interruptible, **pipes) as process:
        try:
            yield (
                store,
                process,
                re.search(r"http://127\.0\.0\.1:\d+/\S+", process.stdout.readline())[0],
            )
        finally:
            process.kill()


def test_a_new_outcome_appears_in_the_part_that_is_read(view, open_page, cell):
    store, process, address = view
    page = open_page(f"{address}#tables")
    assert page.locator("#tables tbody th").all_inner_texts() == ["jem"]
    store.write_cell(cell("baseline", accuracy=Value(91.0, 80.0, 95.0, 9, "%", "higher")), {})
    page.locator("#tables tbody tr").nth(1).wait_for()  # it is loaded again after two seconds
    assert page.locator(".part:visible").get_attribute("id") == "tables"
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 0
    assert process.stderr.read() == ""
