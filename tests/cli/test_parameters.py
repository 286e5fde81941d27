"""The types of options: what the Tab key completes, in a real bash, and what a text stands for."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jembench.cli.parameters import MODELS, RECIPE
from jembench.experiment import recipe

LINES = {
    "jembench com": {"compare"},
    "jembench run hybrid --models jem,base": {"jem,baseline"},
    "jembench run --plugin mine.py hy": {"hybrid"},
}

BASH = """
eval "$(_JEMBENCH_COMPLETE=bash_source jembench)"
for line in "$@"; do
    read -ra COMP_WORDS <<< "$line"
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=()
    _jembench_completion jembench
    echo "${COMPREPLY[*]}"
done
"""

ZSH = """
compdef() { : }
compadd() { print -rn -- "${(@P)@[-1]} " }
_describe() { print -rn -- "${(@)${(@P)3}%%:*} " }
eval "$(_JEMBENCH_COMPLETE=zsh_source jembench)"
for line in "$@"; do
    words=(${=line}) CURRENT=${#words}
    _jembench_completion
    print
done
"""

FISH = """
env _JEMBENCH_COMPLETE=fish_source jembench | source
for line in $argv
    echo (complete --do-complete $line | string split --fields 1 \\t)
end
"""

SHELLS = {
    "bash": ["bash", "-c", BASH, "bash"],
    "zsh": ["zsh", "-f", "-c", ZSH, "zsh"],
    "fish": ["fish", "-c", FISH],
}


@pytest.mark.parametrize("shell", SHELLS)
def test_names_are_completed_in_a_shell_and_nothing_is_printed(shell, tmp_path):
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}")
    (tmp_path / "mine.py").write_text("print('loaded')\nraise SystemExit(3)\n")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {"PATH": path, "HOME": str(tmp_path)}
    command = [*SHELLS[shell], *LINES]
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [set(line.split()) for line in done.stdout.splitlines()] == list(LINES.values())


@pytest.mark.parametrize("instruction", ["bash_source", "bash_complete", "of_nothing"])
def test_completion_ends_as_every_command_does(instruction, tmp_path, monkeypatch):
    monkeypatch.setenv("_JEMBENCH_COMPLETE", instruction)
    monkeypatch.setenv("COMP_WORDS", "jembench run ")
    monkeypatch.setenv("COMP_CWORD", "2")
    command = [sys.executable, "-m", "jembench"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (int(instruction == "of_nothing"), "")


def complete(spec, text):
    return [(item.value, item.type) for item in spec.shell_complete(None, None, text)]


def test_each_spec_of_a_list_is_completed():
    assert complete(MODELS, "igebm,base") == [("igebm,baseline", "plain")]


def test_what_is_no_name_may_be_a_file():
    assert {name for name, _ in complete(RECIPE, "")} == set(recipe.names())
    assert complete(RECIPE, "mine.to") == [("mine.to", "file")]
