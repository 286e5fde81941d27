"""The guides say what is there, and what they show runs."""

import operator
import re
import shlex
import tomllib
from pathlib import Path

import pytest
import torch

import jembench
from jembench import __version__
from jembench.catalog import discovery, registry
from jembench.cli.main import COMMANDS, cli
from jembench.experiment import recipe, suite
from jembench.interfaces import API
from jembench.training.loop import Trainer

ROOT = Path(__file__).parent.parent
README, PLUGINS = ROOT / "README.md", ROOT / "plugins" / "README.md"
GUIDES = [
    README,
    PLUGINS,
    *sorted(ROOT.glob("docs/**/*.md")),
    ROOT / "benchmarks" / "README.md",
    *sorted(ROOT.glob("plugins/*/README.md")),
]


def blocks(path, language):
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)


def commands():
    """Every jembench command in a guide, in a block or between backticks."""
    found = []
    for guide in GUIDES:
        text = guide.read_text()
        lines = [line for block in blocks(guide, "(?:bash)?") for line in block.splitlines()]
        lines += re.findall(r"`(jembench [^`]+)`", text)
        found += [
            (guide.name, line.split("&& ")[-1]) for line in lines if line.split("&& ")[-1].startswith("jembench ")
        ]
    return sorted(set(found))


@pytest.mark.parametrize(("guide", "line"), commands())
def test_every_command_in_a_guide_can_be_parsed(guide, line):
    _, name, *arguments = shlex.split(line)
    context = cli.make_context("jembench", [name, *arguments], resilient_parsing=True)
    command = cli.get_command(context, name)
    assert command is not None, f"{guide}: {line}"
    if not hasattr(command, "commands"):
        command.make_context(name, list(arguments))


def test_every_command_is_in_the_readme():
    assert [name for name in COMMANDS if f"jembench {name}" not in README.read_text()] == []


def test_every_suite_and_recipe_is_in_the_guide_to_benchmarks():
    text = (ROOT / "benchmarks" / "README.md").read_text()
    assert [name for name in (*suite.names(), *recipe.names()) if f"`{name}`" not in text] == []


@pytest.mark.parametrize("kind", ["models", "samplers", "metrics", "datasets", "features", "importers"])
def test_every_component_is_in_a_guide(kind):
    text = "".join(guide.read_text() for guide in GUIDES)
    ours = {"jembench", *(path.name for path in (ROOT / "plugins").iterdir() if path.is_dir())}
    own = [c.name for c in discovery.components(kind) if c.distribution in ours]
    assert [name for name in own if f"`{name}`" not in text] == []


def test_the_functions_that_the_readme_calls_exist():
    called = {name for block in blocks(README, "python") for name in re.findall(r"\bjb\.([\w.]+)\(", block)}
    assert called >= {"run", "load", "metrics.ece"}
    for name in called:
        assert callable(operator.attrgetter(name)(jembench)), name


def test_the_model_of_the_readme_can_be_trained(tmp_path, monkeypatch):
    source, *_ = blocks(README, "python")
    (tmp_path / "my_ebm_of_readme.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    data = registry.resolve("datasets", "digits").make()
    model = registry.resolve("models", "my_ebm_of_readme:build:hidden=16").make(data.spec)
    quick = recipe.load("digits", ["chains.sampler=pcd:steps=2,buffer=100"])
    trainer = Trainer(model, data.spec, data.split("train"), quick, seed=0, device=torch.device("cpu"))
    assert all(part.isfinite() for part in trainer.iterate().values())


def test_the_entry_point_of_the_guide_is_of_a_group_that_is_read():
    (block,) = blocks(PLUGINS, "toml")
    groups = tomllib.loads(block)["project"]["entry-points"]
    assert groups == {"jembench.models": {"my-ebm": "my_ebm:build"}, "jembench.api": {str(API): "my_ebm"}}
    assert "models" in discovery.KINDS


def test_the_versions_agree():
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"version: {__version__}" in citation


def test_every_link_leads_somewhere():
    for guide in (*GUIDES, ROOT / "CONTRIBUTING.md", ROOT / "DESIGN.md"):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", guide.read_text()):
            assert (guide.parent / target).exists(), f"{guide.name} links to {target}"
