"""The files of claims: what they say, and what is refused in them."""

import functools
import re
import shlex
from pathlib import Path

import pytest
from judged_store import PAPER

from jembench.catalog import discovery, registry
from jembench.catalog.spec import Spec
from jembench.cli.attack import attack as attack_command
from jembench.cli.run import run as run_command
from jembench.errors import PluginError
from jembench.experiment import suite as suites
from jembench.experiment.attacks import attack_suite
from jembench.experiment.claims import Claim, NamedFit, load, read
from jembench.experiment.crossing import make_plan
from jembench.report.claims import _pairs

CLAIMS = load()
MEASURED = [claim for claim in CLAIMS if claim.metric]


def by_id(claim):
    return claim.id


def test_every_claim_has_a_name_of_its_own():
    assert len({claim.id for claim in CLAIMS}) == len(CLAIMS)
    assert len({claim.text for claim in CLAIMS}) == len(CLAIMS)


@pytest.mark.parametrize("claim", MEASURED, ids=by_id)
def test_its_commands_measure_it(claim):
    installed = {component.name for component in discovery.components("models")}
    if not {Spec(model).bare for model in claim.models} <= installed:
        pytest.skip("its models are not installed")
    planned = {}
    for command in claim.measure:
        for cell in plan(command).cells:
            metric = Spec(str(cell.metric)).without(*claim.free)
            planned.setdefault(cell.fit.key.names, set()).add(metric)

    pairs = list(_pairs(claim, planned))
    metrics = [registry.canonical("metrics", metric) for metric in claim.metric]
    than_metrics = metrics
    if claim.than_metric:
        than_metrics = [registry.canonical("metrics", metric) for metric in claim.than_metric]
    is_measured = []
    for metric, than_metric in zip(metrics, than_metrics, strict=True):
        for a, b in pairs:
            is_measured.append(metric in planned[a] and than_metric in planned[b])
    assert any(is_measured)


@functools.cache
def plan(command):
    words = shlex.split(command)
    if words[:2] == ["jembench", "attack"]:
        arguments = attack_command.make_context("attack", words[2:], resilient_parsing=True).params
        options = {name: arguments[name] for name in ("norm", "refine", "eot") if arguments[name]}
        suite = attack_suite(arguments["attack"], options, arguments["dataset"])
        return make_plan(suite.replaced(models=arguments["models"], seeds=arguments["seeds"]))
    assert words[:2] == ["jembench", "run"]
    arguments = run_command.make_context("run", words[2:], resilient_parsing=True).params
    suite = suites.load(arguments["suite"])
    fields = {"models": "models", "datasets": "dataset", "seeds": "seeds", "metrics": "metrics"}
    for field, name in fields.items():
        if arguments[name]:
            suite = suite.replaced(**{field: arguments[name]})
    return make_plan(suite, recipe=arguments["recipe"])


FILE = """
[paper]
title = "A paper"
cite = "Somebody"
url = ""
[[claim]]
id = "one"
text = "One"
where = "Table 1"
metric = "accuracy"
higher = "jem"
than = 0.5
measure = ["jembench run hybrid"]
"""


def test_a_file(tmp_path):
    (claim,) = read("mine", written(tmp_path, FILE))
    assert claim == Claim(
        id="mine/one",
        paper=PAPER,
        text="One",
        where="Table 1",
        metric=("accuracy",),
        direction="higher",
        fits=(NamedFit("jem"),),
        number=0.5,
        measure=("jembench run hybrid",),
    )


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('title = "A paper"\n', "", "lacks paper.title"),
        ("than = 0.5\n", "", "one has neither than nor than_metric: nothing to be higher than"),
        (
            'higher = "jem"',
            'higher = "jem"\nlower = "jem"',
            "one must have one of higher and lower",
        ),
        ('higher = "jem"', "", "one must have one of higher and lower"),
        (
            "than = 0.5",
            "than = 0.5\nthen = 1",
            "There is no key in claim mine/one named 'then'. Nearest: than",
        ),
        ('metric = "accuracy"\n', "", "one lacks metric. "),
        ("[paper]", "[paper", "Expected"),
        (
            "than = 0.5",
            'than = ["baseline", "igebm"]',
            "one must name as many of than as of higher",
        ),
    ],
)
def test_a_file_that_is_not_of_the_layout(tmp_path, old, new, problem):
    with pytest.raises(
        PluginError,
        match=rf"The file of claims .*mine\.toml cannot be used: .*{re.escape(problem)}",
    ):
        read("mine", written(tmp_path, FILE.replace(old, new)))


def written(folder, text) -> Path:
    path = folder / "mine.toml"
    path.write_text(text)
    return path
