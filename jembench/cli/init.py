"""``jembench init``: write the file of an experiment from what a command line says."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
from click.core import ParameterSource

from jembench.api.runs import plan_run
from jembench.catalog import trust
from jembench.cli import options
from jembench.cli.output import check_file, plugins_aside
from jembench.cli.parameters import SUITE
from jembench.cli.run import run
from jembench.errors import SpecError
from jembench.experiment import suite_files as suites
from jembench.experiment.plan import Plan
from jembench.experiment.suite import Suite
from jembench.files import write_bytes


class Field(NamedTuple):
    """A key of the file, and the option of ``run`` that says the same."""

    key: str
    option: str
    comment: str
    example: Any = None  # None: what the suite itself says


FIELDS = (
    Field("include", "suite", "The suites that it is made of. What this file names stands in place of what they name."),
    Field("models", "models", "Models (`jembench list models`)."),
    Field("datasets", "dataset", "Datasets (`jembench list datasets`)."),
    Field("metrics", "metrics", "Metrics, in place of grids and attacks too (`jembench list metrics`)."),
    Field("seeds", "seeds", "Seeds of the trainings."),
    Field(
        "recipe", "recipe", "The recipe of all models (`jembench list recipes`), in place of each dataset's.", "fast"
    ),
    Field("settings", "settings", "Changes of the recipe and options of metrics.", ["epochs=20", "ece.bins=15"]),
    Field("limit", "limit", "Number of test images to evaluate on; all without it.", 100),
    Field("reference", "reference", "Published tables to show beside the results."),
    Field("run.store", "store", "Folder of trained models and results.", "runs"),
    Field("run.device", "device", "cpu, cuda, cuda:1 ...", "auto"),
    Field("run.devices", "devices", "Train each model on this number of GPUs.", 1),
    Field("run.executor", "executor", "Where the work runs: local, processes:jobs=4, slurm:partition=gpu ...", "auto"),
    Field("run.max_hours", "max_hours", "Stop cleanly after this number of hours.", 12),
    Field("run.skip_missing", "skip_missing", "Start even if weights or images are missing.", False),
    Field("run.trackers", "trackers", "Trackers that follow the run (`jembench list trackers`).", []),
    Field("run.format", "format", "What is printed (`jembench list formats`).", "table"),
)
"""The keys of the file in their order."""

EXCLUDED = {
    "detach": "it is how one command is started",
    "dry_run": "it is what one command does",
    "jobs": "run.executor says it",
    "jobs_per_gpu": "run.executor says it",
    "plugin": "no file chooses code",
}
"""The options of ``run`` that no file has, and why."""

HEADER = """\
# An experiment of jembench: `jembench run FILE` carries it out, and resumes it.
# What the environment (JEMBENCH_...) says is stronger than the file, and what the command line says is stronger than
# both. Lines that begin with # are not read: take the # away to use one.
"""

TABLES = """\
# A model with a name in tables, a recipe, settings or seeds of its own. There may be several tables, and `models` too.
# [[model]]
# spec = "jem"
# name = "JEM, ours"
# recipe = "paper"
# settings = ["epochs=20"]
# seeds = [0]

# An attack: every combination of the options that are lists. `jembench attack --help` explains them.
# [[attack]]
# name = "pgd"
# norm = ["linf", "l2"]
# refine = [0, 1, 10]
# budget = "quick"

# A claim, with the fields of the claims of papers: `jembench report FILE --claims` says whether it holds.
# [[claim]]
# id = "accurate"
# text = "It loses at most 1 point of accuracy against the baseline"
# metric = "accuracy"
# higher = "jem"
# than = "baseline"
# within = 1.0

# Files that are written after the run: options of `jembench report` and of `jembench figures`.
# [[report]]
# format = "latex"
# output = "table.tex"
# [[figures]]
# output = "figures"
"""

EXAMPLES = options.examples(
    "jembench init hybrid > experiment.toml",
    "jembench init hybrid --models jem,baseline --seeds 0,1,2 --set epochs=20 --output experiment.toml",
)


@click.command("init", epilog=EXAMPLES)
@click.argument("suite", metavar="SUITE", type=SUITE)
@options.output
@options.force
@click.pass_context
def init(ctx: click.Context, /, suite: str, output: Path | None, force: bool, **given: Any) -> None:
    """Write an experiment's file: SUITE with the options of `run`.

    `jembench run` of the file does what `jembench run` with the same options would do. A comment explains each field.
    """
    if suite not in suites.names():
        suites.load(suite)  # which says what is wrong with the name
        raise SpecError(f"{suite} is a file already. Copy it, or name a suite: {', '.join(suites.names())}.")
    stated = {name: given[name] for name in given if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT}
    workers = [stated.pop(name, None) for name in ("jobs", "jobs_per_gpu")]
    if any(workers):
        stated["executor"] = options.executor_of(given["executor"], *workers)
    values = _values({"suite": suite, **stated})
    with plugins_aside():
        plan_of(suite, values)  # what does not exist is an error here
        text = document(suites.load(suite), values)
    _note_code(values)
    if output is None:
        click.echo(text, nl=False)
    else:
        check_file(output, ".toml", force=force, ours=lambda path: False)
        write_bytes(output, text.encode(), "--output")
        click.echo(output)


_OF_RUN = {field.option for field in FIELDS} - {"suite"} | {"jobs", "jobs_per_gpu"}
init.params.extend(option for option in run.params if option.name in _OF_RUN)


def _values(given: Mapping[str, Any]) -> dict[str, Any]:
    """What the options say, as the keys of the file hold it."""
    found = {field.key: given[field.option] for field in FIELDS if field.option in given}
    lists = {
        "include": lambda name: [name],
        "reference": options.published_tables,
    }
    return {key: lists[key](value) if key in lists else value for key, value in found.items()}


def plan_of(suite: str, values: Mapping[str, Any]) -> Plan:
    """What ``jembench run`` of a suite would do with the same options."""
    chosen = {key: values.get(key) for key in ("models", "metrics", "datasets", "seeds")}
    settings = values.get("settings", ())
    return plan_run(suite, recipe=values.get("recipe"), settings=settings, limit=values.get("limit"), **chosen)


def _note_code(values: Mapping[str, Any]) -> None:
    """Say what the file needs to be run, if it names code."""
    if code := sorted({name for text in trust.strings(values) for name in trust.code_in(text)}):
        click.echo(
            f"The file names code of yours, which `jembench run` uses if you name it too: "
            f"{trust.VARIABLE}={','.join(code)} jembench run FILE",
            err=True,
        )


# --- the text ---------------------------------------------------------------------------------------------------------


def document(suite: Suite, values: Mapping[str, Any]) -> str:
    """The text of the file.

    Args:
        suite: whose own models, datasets and so on stand there as comments.
        values: by keys.

    Raises:
        SpecError: if a value is no text that a file can hold.
    """
    lines = [HEADER, f"title = {toml(suite.title)}", ""]
    for field in FIELDS:
        table, _, key = field.key.rpartition(".")
        if table and f"[{table}]" not in lines:
            lines += [TABLES, f"[{table}]"]
        value = values[field.key] if field.key in values else _example(field, suite)
        mark = "" if field.key in values else "# "
        lines += [f"# {field.comment}", f"{mark}{key} = {toml(value)}", ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _example(field: Field, suite: Suite) -> Any:
    """What can be said under a key: what the suite itself says, or an example."""
    if field.key == "reference":
        return suite.references
    if field.example is None:
        return list(dict.fromkeys(value for part in suite.parts for value in getattr(part, field.key)))
    return field.example


def toml(value: Any) -> str:
    """A value as TOML: text, a number, a boolean, or a list of these.

    Raises:
        SpecError: for a text that is no Unicode.
    """
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, Path):
        value = str(value)
    text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise SpecError(f"{value!r} is no text that a file can hold. Write it in UTF-8.") from None
    return text
