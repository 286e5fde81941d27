"""The entry point: what it imports, what it exits with and how it tells of errors."""

import os
import shlex
import signal
import subprocess
import sys
import warnings

import click
import pytest

from jembench.cli import main as entry
from jembench.cli.main import LazyCommand
from jembench.errors import Diverged, Fallback, SpecError

COMMAND = [sys.executable, "-c", "import sys; from jembench.cli.main import main; sys.exit(main())"]


def command(*path):
    """A command and its context, as the command line makes them."""
    current, ctx = entry.cli, click.Context(entry.cli, info_name="jembench")
    for name in path:
        current = current.get_command(ctx, name)
        ctx = click.Context(current, info_name=name, parent=ctx)
    return current, ctx


@pytest.fixture
def failing(monkeypatch):
    """Make ``jembench list`` raise an error."""

    def fail_with(error):
        @click.command()
        def stand_in():
            raise error

        monkeypatch.setattr(sys.modules[__name__], "stand_in", stand_in, raising=False)
        monkeypatch.setitem(sys.modules, "stand_in", sys.modules[__name__])
        monkeypatch.setitem(entry.COMMANDS, "list", LazyCommand("stand_in:stand_in", "Fails."))

    return fail_with


def test_commands_are_frozen():
    commands = (
        "run init reproduce attack status work train estimate import sample report view compare "
        "check figures list plugin store push fetch doctor"
    )
    assert list(entry.COMMANDS) == commands.split()


@pytest.mark.parametrize(
    "name", [name for name, late in entry.COMMANDS.items() if isinstance(late, LazyCommand)]
)
def test_the_static_help_is_that_of_the_command(name):
    described, _ = command(name)
    assert described.name == name
    summary = described.get_short_help_str(limit=1000)
    assert summary.rstrip(".") == entry.COMMANDS[name].help.rstrip(".")


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["list", "models", "--help"], ["lsit"]]
)
def test_what_answers_at_once_imports_nothing_heavy(arguments, tmp_path):
    script = (
        f"import sys\nfrom jembench.cli.main import main\nmain({arguments!r})\nheavy = {{'torch', "
        "'torchvision', 'numpy', 'scipy', 'sklearn', 'matplotlib'} & "
        "sys.modules.keys()\nsys.exit(str(sorted(heavy)) if heavy else 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_help_imports_no_command():
    script = (
        "import sys; from jembench.cli.main import main; main(['--help']); "
        "print(*sorted(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    ours = {module for module in done.stdout.split() if module.startswith("jembench.cli")}
    assert ours == {"jembench.cli", "jembench.cli.main"}


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_closed_stream_is_no_error(closed):
    command = f"{shlex.quote(sys.executable)} -m jembench --version {closed}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert ("version" in done.stdout) == (closed == "2>&-")


class EndsAll(BaseException):
    def __str__(self):
        raise ZeroDivisionError


@pytest.mark.parametrize("error", [SystemExit(0), EndsAll()])
def test_what_ends_the_program_is_reported(jembench, monkeypatch, error):
    def end(*_):
        raise error

    monkeypatch.setattr("jembench.cli.list_.print_table", end)
    done = jembench("list", "models")
    assert done.code == 1
    assert f"This is a bug in jembench or in a plugin: {type(error).__name__}: " in done.err


def test_without_a_command_the_help_is_shown(jembench):
    done = jembench()
    assert (done.code, done.out) == (2, "")
    assert done.err == jembench("--help").out


def test_wrong_usage_is_told_in_one_paragraph(jembench):
    done = jembench("list", "recipe", "digits", "more")
    assert done == (
        2,
        "",
        "Error: Got unexpected extra argument (more). `jembench list --help` says how it is "
        "used.\n",
    )


@pytest.mark.parametrize("name", ["run", "train", "estimate", "sample", "report"])
def test_the_examples_of_the_help_name_options_that_there_are(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "experiment.toml").write_text('title = "Mine"\ninclude = ["hybrid"]\n')
    described, ctx = command(name)
    examples = [
        shlex.split(line)[2:]
        for line in described.epilog.splitlines()
        if line.startswith("  jembench ")
    ]
    assert len(examples) >= 3
    for words in examples:
        words = words[: words.index(">")] if ">" in words else words
        assert described.make_context(name, words, parent=ctx.parent).params


def test_an_unknown_command_is_answered_with_the_nearest_and_all(jembench):
    done = jembench("docter")
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        "Error: There is no command named 'docter'. Nearest: doctor, work, train. Known: attack, "
        "check, compare, doctor, estimate, fetch, figures, import, init, list, plugin, push, "
        "report, reproduce, run, sample, status, store, train, view, work. `jembench --help` says "
        "what each one is.\n"
    )


@pytest.mark.parametrize(
    ("error", "code"), [(SpecError("Write it\notherwise."), 2), (Diverged("Too fast."), 1)]
)
def test_an_error_of_the_user_is_one_paragraph(jembench, failing, error, code):
    failing(error)
    done = jembench("list")
    assert done == (code, "", f"Error: {' '.join(str(error).splitlines())}\n")


def test_a_paragraph_is_wrapped_to_the_terminal_and_words_are_kept_whole(
    jembench, failing, monkeypatch
):
    failing(
        SpecError(
            "There is no model. "
            + "Write one. " * 10
            + "https://example.org/a-long-address/that-is-kept"
        )
    )
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    lines = jembench("list").err.splitlines()
    assert lines[-1] == "https://example.org/a-long-address/that-is-kept"
    assert all(len(line) <= 30 for line in lines[:-1])
    assert len(lines) > 4


def test_debug_shows_the_traceback_and_keeps_the_exit_code(jembench, failing):
    failing(SpecError("Write it otherwise."))
    done = jembench("--debug", "list")
    assert done.code == 2
    assert done.err.startswith("Traceback (most recent call last):")
    assert done.err.endswith("Error: Write it otherwise.\n")


def test_a_note_is_told_once_but_what_is_not_compiled_each_time(capsys):
    shown = set()
    for text in [
        "A file is damaged.",
        "Not compiled (why).",
        "A file is damaged.",
        "Not compiled (why).",
    ]:
        entry._show_warning(warnings.showwarning, shown, Fallback(text), Fallback, "file.py", 1)
    assert (
        capsys.readouterr().err
        == "Note: A file is damaged.\nNote: Not compiled (why).\nNote: Not compiled (why).\n"
    )


def test_a_bug_says_that_it_is_one(jembench, failing):
    failing(KeyError("grad"))
    assert jembench("list") == (
        1,
        "",
        "Error: This is a bug in jembench or in a plugin: KeyError: 'grad'. Run the command again "
        "as `jembench --debug ...` to see where it comes from, and report what that prints.\n",
    )


def test_a_reader_who_goes_away_is_no_error():
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*COMMAND, "list"], stdout=writing, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


def test_the_users_own_module_is_found_where_the_command_is_run(tmp_path):
    (tmp_path / "my_zoo.py").write_text("def build(data_spec): ...\n")
    script = (
        "import sys; sys.path.remove('')\nfrom jembench.cli.main import main; main(['train', "
        "'my_zoo:build:x=1']); print('' in sys.path)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "no option of my_zoo:build named 'x'" in done.stderr
    assert done.stdout == "False\n"  # and not there afterwards


def test_a_real_interrupt(tmp_path):
    (tmp_path / "slow.py").write_text(
        "import click, time\n@click.command()\ndef slow():\n    print('ready', flush=True)\n    "
        "time.sleep(60)\n"
    )
    script = (
        "import signal, sys\nfrom jembench.cli import main as entry\nfrom jembench.cli.main "
        "import LazyCommand\n"
        # a parent in the background has it ignored
        "signal.signal(signal.SIGINT, signal.default_int_handler)\nentry.COMMANDS['slow'] = "
        "LazyCommand('slow:slow', 'Waits.')\nsys.exit(entry.main(['slow']))\n"
    )
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=tmp_path, text=True, **pipes
    ) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in err
