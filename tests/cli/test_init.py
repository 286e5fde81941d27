import re
from pathlib import Path

import click
import pytest

from jembench.cli.run import run
from jembench.experiment import suite as suites
from jembench.experiment.crossing import make_plan

KEYS = {"dataset": "datasets", "suite": "include"}
"""Options of ``run`` whose key in a file has another name."""

ABSENT = {"detach", "dry_run", "jobs", "plugin", "names", "heading", "sampler", "split"}
"""Options that concern one command alone, say what ``executor``, ``name`` or ``settings`` say, or
choose code.
"""


def test_every_option_of_run_has_a_key_in_the_file(jembench):
    options = {parameter.name for parameter in run.params if isinstance(parameter, click.Option)}
    keys = set(re.findall(r"^(?:# )?(\w+) = ", jembench("init", "hybrid").out, flags=re.MULTILINE))
    assert {KEYS.get(name, name) for name in options - ABSENT} <= keys


@pytest.mark.filterwarnings("ignore:The recipe .* flips images")  # the template has digits
def test_every_line_that_is_commented_out_can_be_used(jembench, tmp_path):
    used = re.sub(r"^# (?=\[\[|\w+ = )", "", jembench("init", "hybrid").out, flags=re.MULTILINE)
    path = tmp_path / "mine.toml"
    path.write_text(used)
    plan = make_plan(suites.load(str(path)))
    assert [fit.model.component.name for fit in plan.fits] == ["jem", "jem", "baseline"]
    assert {cell.metric.component.name for cell in plan.cells} >= {"accuracy", "pgd"}


@pytest.mark.parametrize("suite", suites.names())
def test_the_file_does_what_its_suite_does(jembench, suite):
    written = jembench("init", suite, "--output", "mine.toml")
    assert (written.code, written.out) == (0, "mine.toml\n")
    mine, installed = make_plan(suites.load("mine.toml")), make_plan(suites.load(suite))
    assert [cell.id for cell in mine.cells] == [cell.id for cell in installed.cells]


def test_a_file_is_replaced_with_force_alone(jembench):
    Path("mine.toml").write_text("mine")
    again = jembench("init", "hybrid", "--output", "mine.toml")
    assert (again.code, Path("mine.toml").read_text()) == (2, "mine")
    assert "mine.toml exists" in again.err
    assert jembench("init", "hybrid", "--output", "mine.toml", "--force").code == 0
