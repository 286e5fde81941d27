"""Commands in poor surroundings: a full disk, no folder, no home, a narrow terminal, a locale
without letters.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from small_store import small_store

COMMANDS = ["list models", "report", "compare jem baseline", "status", "store list", "store verify"]
PLAN = "run hybrid --models baseline --metrics accuracy --dry-run"


@pytest.mark.parametrize("command", [*COMMANDS, PLAN, "doctor", "--help"])
def test_a_folder_that_was_removed(jembench, tmp_path, monkeypatch, command):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert jembench(*command.split()) == (
        2,
        "",
        "Error: The current folder was removed. Change to another one.\n",
    )


@pytest.mark.parametrize("command", [*COMMANDS, PLAN])
@pytest.mark.parametrize(
    "surroundings", [{"COLUMNS": "20"}, {"NO_COLOR": "1", "TERM": "dumb"}], ids=str
)
def test_a_poor_terminal(jembench, monkeypatch, surroundings, command):
    small_store(Path("runs"))
    for name, value in surroundings.items():
        monkeypatch.setenv(name, value)
    done = jembench(*command.split())
    assert done.code == 0
    assert "\x1b" not in done.out + done.err


@pytest.fixture
def process(tmp_path):
    """Call commands one after another in a process with ``surroundings`` alone."""
    small_store(tmp_path / "é漢")

    def process(surroundings, commands, stdout=subprocess.PIPE):
        calls = (
            "import sys; from jembench.cli.main import main; sys.exit(max(main(x.split()) for x "
            "in sys.argv[1:]))"
        )
        command = [sys.executable, "-c", calls, *commands]
        pipes = {"stdout": stdout, "stderr": subprocess.PIPE}
        return subprocess.run(command, env=surroundings, cwd=tmp_path, check=False, **pipes)

    return process


LINES = ["list models", *(f"{command} --store é漢" for command in [*COMMANDS[1:], PLAN])]


@pytest.mark.parametrize(
    ("surroundings", "lines"),
    [
        ({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, LINES),
        ({"PYTHONIOENCODING": "ascii:strict"}, LINES[1:2]),
    ],
    ids=["locale", "encoding"],
)
def test_names_that_the_locale_cannot_write_and_no_home(process, surroundings, lines):
    done = process(surroundings, lines)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"baseline" in done.stdout


@pytest.mark.parametrize("command", ["list models", "report --store é漢"])
def test_output_to_a_full_disk(process, command):
    with Path("/dev/full").open("wb") as full:
        done = process({}, [command], full)
    error = "Error: Cannot write the output: No space left on device. Send it to another place.\n"
    assert (done.returncode, done.stderr.decode()) == (2, error)
