import pkgutil
import re
import shlex
import tomllib
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from torch import nn

from jembench.catalog import discovery
from jembench.cli.main import COMMANDS, cli
from jembench.data.digits import digits
from jembench.errors import NotApplicable
from jembench.experiment import recipe, suite
from jembench.interfaces import API
from jembench.interfaces.evaluation import Checked
from jembench.models.capabilities import capabilities
from jembench.models.objective import as_model
from jembench.plugin import resolve
from jembench.running.planned import PlannedFit

ROOT = Path(__file__).parent.parent
PLUGINS = ROOT / "docs" / "reference" / "plugins.md"
GUIDES = [
    ROOT / "README.md",
    *sorted(ROOT.glob("docs/**/*.md")),
    ROOT / "benchmarks" / "README.md",
    *sorted(ROOT.glob("plugins/**/README.md")),
]


def blocks(path, language):
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)


def commands():
    """Every jembench command in a guide, in a block or between backticks."""
    lines_of_guides = []
    for guide in GUIDES:
        text = guide.read_text()
        lines = [line for block in blocks(guide, "(?:bash)?") for line in block.splitlines()]
        lines += re.findall(r"`(jembench [^`]+)`", text)
        lines_of_guides += [
            (guide.name, line.split("&& ")[-1])
            for line in lines
            if line.split("&& ")[-1].startswith("jembench ")
        ]
    return sorted(set(lines_of_guides))


@pytest.mark.parametrize(("guide", "line"), commands())
def test_every_command_in_a_guide_can_be_parsed(guide, line, monkeypatch):
    # a file of the guide
    monkeypatch.setattr("jembench.catalog.plugin_files.add", lambda path: None)
    _, name, *arguments = shlex.split(line)
    context = cli.make_context("jembench", [name, *arguments], resilient_parsing=True)
    command = cli.get_command(context, name)
    assert command is not None, f"{guide}: {line}"
    if not hasattr(command, "commands"):
        command.make_context(name, list(arguments))


def test_every_suite_and_recipe_is_in_the_guide_to_benchmarks():
    text = (ROOT / "benchmarks" / "README.md").read_text()
    assert [name for name in (*suite.names(), *recipe.names()) if f"`{name}`" not in text] == []


def test_every_kind_of_component_is_in_the_reference():
    pages = (ROOT / "docs" / "reference" / "components").glob("*.md")
    text = "\n".join(page.read_text() for page in pages)
    shown = set(re.findall(r"^```\{components\} (\S+)$", text, re.MULTILINE))
    # of plugins alone
    assert shown == {*discovery.KINDS, "recipes", "references"} - {"schedules", "augmentations"}


def test_every_command_has_a_page_and_a_line_in_the_reference():
    folder = ROOT / "docs" / "reference"
    pages = {path.stem: path.read_text() for path in (folder / "cli").glob("*.md")}
    assert pages == {name: f"```{{eval-rst}}\n.. command:: {name}\n```\n" for name in COMMANDS}
    lines = re.findall(r"^\| \[(\S+)\]\(cli/(\S+)\.md\) \|", (folder / "cli.md").read_text(), re.M)
    assert lines == [(name, name) for name in COMMANDS]


def test_every_environment_variable_is_on_the_settings_page():
    page = (ROOT / "docs" / "reference" / "settings.md").read_text()
    code = "".join(path.read_text() for path in (ROOT / "jembench").rglob("*.py"))
    read = set(re.findall(r'environ(?:ment)?(?:\.get\(|\.setdefault\(|\[)"([A-Z_]+)"', code))
    assert {"JEMBENCH_DATA", "CUDA_VISIBLE_DEVICES"} <= read
    assert [name for name in sorted(read) if f"`{name}`" not in page] == []
    assert set(re.findall(r"^```\{settings\} (\S+)$", page, re.MULTILINE)) == {
        "options",
        "variables",
        "limits",
        "folders",
    }


def test_the_numbers_of_images_are_those_of_the_digits():
    data = digits()
    train, test = len(data.split("train").images), len(data.split("test").images)
    tutorial = (ROOT / "docs" / "tutorial.md").read_text()
    assert f"200 of the {test} test images" in tutorial
    for page in (tutorial, (ROOT / "README.md").read_text()):
        assert re.search(r"([\d,]+)\s+handwritten\s+digits", page)[1] == f"{train + test:,}"


def test_the_table_of_models_has_what_each_gives():
    table = (ROOT / "README.md").read_text().split("## Models")[1].split("##")[0].replace(r"\|", "")
    rows = [
        [cell.strip(" `") for cell in line.split("|")[1:-1]]
        for line in table.splitlines()
        if line.startswith("| `")
    ]
    assert len(rows) >= 12
    for name, _, *cells in rows:
        small = {"glow": "steps=1,hidden=8", "residual-flow": "blocks=1,hidden=8"}.get(
            name.partition(":")[0]
        )
        spec = f"{name}{',' if ':' in name else ':'}levels=2,{small}" if small else name
        model = resolve("models", spec).make(digits().spec)
        gives = capabilities(model)
        exact = "lower bound" if hasattr(model, "log_prob_is_bound") else "exact"
        density = exact if "log_prob" in gives else "up to a constant"
        logits = "yes" if "logits" in gives else "no"
        assert cells == [logits, density, "yes" if "samples" in gives else "no"], name


GIVES = {
    "forward(x)": {"forward": lambda self, x: x.new_zeros(len(x), 10)},
    "logits(x)": {"logits": lambda self, x: ...},
    "energy(x)": {"energy": lambda self, x: ...},
    "energy(x, y=None)": {"energy": lambda self, x, y=None: ...},
    "energy(x, y)": {"energy": lambda self, x, y: ...},
    "log_prob(x)": {"log_prob": lambda self, x: ...},
    "log_prob(x, y=None)": {"log_prob": lambda self, x, y=None: ...},
    "sample(n, y=None, *, generator)": {"sample": lambda self, n, y=None, *, generator: ...},
    "training_loss(batch, negatives)": {
        "training_loss": lambda self, batch, negatives: ...,
        "chains": "marginal",
    },
}


def measured(methods, *metrics):
    """Return the metrics that are not N/A for a model with these methods."""
    data, applicable = digits(), []
    model = as_model(type("Toy", (nn.Module,), methods)(), data.spec, "toy")
    chains = SimpleNamespace(capacity=0) if "chains" in methods else None
    planned = PlannedFit(
        dataset=data, test=data.split("test"), fetching=False, model=model, sampler=chains
    )
    for name in metrics:
        metric = resolve("metrics", name).make()
        with suppress(NotApplicable):
            planned.require(metric.requires)
            if isinstance(metric, Checked):
                metric.check(planned)
            applicable.append(name)
    return applicable


def test_the_table_of_methods_says_what_each_gives():
    guide = (
        (ROOT / "docs" / "how-to" / "own-model.md")
        .read_text()
        .split("## What a model may have")[1]
        .split("##")[0]
    )
    stated = {}
    for line in re.findall(r"^\| (`.*)\|$", guide, re.MULTILINE):
        first, _, *cells = (cell.strip() for cell in re.split(r"(?<!\\)\|", line))
        stated |= dict.fromkeys(re.findall(r"`(\w+\(.*?\))`", first), cells)
    assert stated.keys() == GIVES.keys()
    of_energy, of_samples = "; with an energy: energy-gap", ("is", "fid", "energy-gap")
    scores = [one.name for one in discovery.components("scores") if one.distribution == "jembench"]
    for method, (always, added, scored) in stated.items():
        if of_energy in always:
            assert measured({**GIVES[method], **GIVES["energy(x)"]}, "energy-gap")
            always = always.replace(of_energy, "").removeprefix(
                'with `chains` other than `"none"`: '
            )
        without_sampler = measured(GIVES[method], "accuracy", "ece", "nll", *of_samples)
        assert ", ".join(without_sampler) == always, method
        drawn = measured(
            GIVES[method],
            *(f"{name}:sampler=sgld" for name in of_samples if name not in without_sampler),
        )
        assert ", ".join(drawn) == added.replace(",", ":sampler=sgld,") + ":sampler=sgld" * bool(
            added
        ), method
        ood = measured(
            GIVES[method], *(f"ood:set=uniform,score={score}" for score in sorted(scores))
        )
        assert ", ".join(name.rpartition("=")[2] for name in ood) == scored, method


def test_the_science_names_code_that_exists():
    text = (ROOT / "docs" / "science.md").read_text()
    names = re.findall(r"`(jembench\w*(?:\.\w+)+)`", text)
    assert len(names) > 40
    for name in names:
        pkgutil.resolve_name(name)


def test_the_entry_point_of_the_guide_is_of_a_group_that_is_read():
    (block,) = blocks(PLUGINS, "toml")
    groups = tomllib.loads(block)["project"]["entry-points"]
    assert groups == {
        "jembench.models": {"my-ebm": "my_ebm:build"},
        "jembench.api": {str(API): "my_ebm"},
    }
    assert "models" in discovery.KINDS


def test_the_versions_agree():
    versions = {}
    for file in [ROOT / "pyproject.toml", *sorted(ROOT.glob("plugins/*/pyproject.toml"))]:
        hatch = tomllib.loads(file.read_text())["tool"]["hatch"]
        versions[str(file.relative_to(ROOT))] = hatch["version"]["fallback-version"]
    version = versions["pyproject.toml"]
    differing = {file: text for file, text in versions.items() if text != version}
    assert not differing, f"pyproject.toml has {version}"
    release = re.search(
        rf"^## {version} \((.+)\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    assert release, f"CHANGELOG.md has no section {version} with a date"
    cited = f"version: {version}\ndate-released: {release[1]}\n"
    assert cited in (ROOT / "CITATION.cff").read_text(), "CITATION.cff"


def test_every_link_leads_somewhere():
    for guide in (*GUIDES, ROOT / "CONTRIBUTING.md", ROOT / "DESIGN.md"):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", guide.read_text()):
            assert (guide.parent / target).exists(), f"{guide.name} links to {target}"
