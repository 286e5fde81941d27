"""The types of options: what the Tab key completes, in a real bash, and what a text stands for."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jembench.cli.parameters import MODELS, RECIPE
from jembench.experiment import recipe

SCRIPT = """
eval "$(_JEMBENCH_COMPLETE=bash_source jembench)"
for line in "$@"; do
    read -ra COMP_WORDS <<< "$line"
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=()
    _jembench_completion jembench 2> /dev/null
    echo "${COMPREPLY[*]}"
done
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_names_are_completed_in_bash():
    lines = {
        "jembench com": {"compare"},
        "jembench run hy": {"hybrid"},
        "jembench run hybrid --models jem,base": {"jem,baseline"},
        "jembench attack point": {"pointwise"},
    }
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", SCRIPT, "bash", *lines], env=environment, capture_output=True, text=True)
    assert [set(line.split()) for line in done.stdout.splitlines()] == list(lines.values()), done.stderr


def complete(spec, text):
    return [(item.value, item.type) for item in spec.shell_complete(None, None, text)]


def test_each_spec_of_a_list_is_completed():
    assert complete(MODELS, "igebm,base") == [("igebm,baseline", "plain")]


def test_what_is_no_name_may_be_a_file():
    assert {name for name, _ in complete(RECIPE, "")} == set(recipe.names())
    assert complete(RECIPE, "mine.to") == [("mine.to", "file")]
