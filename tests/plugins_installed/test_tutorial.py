"""The guide to plugins, followed from its first line to its last in an empty folder: a few epochs of everything."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

GUIDE = Path(__file__).parents[2] / "plugins" / "README.md"
TUTORIAL = re.search(r"## A row of your own in ten minutes\n(.*?)\n## ", GUIDE.read_text(), re.DOTALL)[1]

pytestmark = pytest.mark.skipif(
    not (importlib.util.find_spec("pip") and importlib.util.find_spec("hatchling")),
    reason="a distribution is built and installed here with pip and hatchling: tox -e plugins has them",
)


class Step(NamedTuple):
    """A file to be written, or commands to be run."""

    file: str  # "": commands
    text: str


def steps():
    """What the guide asks of the reader, in order. A Python block belongs to the file named last before it."""
    found, file = [], ""
    for name, language, block in re.findall(r"In `(\w+\.py)`|^```(\w*)\n(.*?)^```", TUTORIAL, re.MULTILINE | re.DOTALL):
        if name:
            file = name
        elif language in ("", "python"):
            found.append(Step(file if language else "", block))
    return found


@pytest.fixture(scope="module")
def followed(tmp_path_factory):
    """Follow the guide; gives the folder and what each command printed."""
    folder, site = tmp_path_factory.mktemp("tutorial"), tmp_path_factory.mktemp("site")
    script, printed = ["set -e"], {}
    for step in steps():
        if step.file:
            script.append(f"cat > {step.file} <<'END'\n{step.text}END")
        else:
            script += [f"echo '>>>' {json.dumps(line)}\n{_offline(line, site)}" for line in step.text.splitlines()]
    environment = os.environ | {
        "PYTHONPATH": str(site),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "JEMBENCH_SET": "epochs=0.3",
        "JEMBENCH_RUN_LIMIT": "50",
        "COLUMNS": "200",
    }
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    for part in done.stdout.split(">>> ")[1:]:
        command, _, output = part.partition("\n")
        printed[command] = output
    return folder, printed


def _offline(line, site):
    """The command as it is, but for pip, which here may neither fetch anything nor change this environment.

    And with little training, where the guide says how much.
    """
    if match := re.fullmatch(r"pip install -e (\S+)", line):
        options = "--quiet --no-index --no-deps --no-build-isolation"
        return f"{sys.executable} -m pip install {options} --target {site} ./{match[1]}"
    return line.replace("--set epochs=2", "--set epochs=0.1")


def test_the_guide_has_files_and_commands():
    assert [step.file for step in steps() if step.file] == ["sketch.py", "nets.py", "mine.py", "gan.py"]
    assert sum(len(step.text.splitlines()) for step in steps() if not step.file) >= 15


def test_each_run_has_a_row_for_each_model_that_it_names(followed):
    _, printed = followed
    runs = {command: output for command, output in printed.items() if command.startswith("jembench run")}
    assert len(runs) == 7
    for command, output in runs.items():
        models = re.search(r"--models \"?([^\" ]+)", command)[1].replace("$fit", "")
        for model in models.split(","):
            assert model.partition("=")[0] in output, command


def test_imported_weights_give_what_the_fit_gave(followed):
    folder, _ = followed
    cells = [json.loads(path.read_text()) for path in (folder / "runs" / "cells").iterdir()]
    accuracy = {
        cell["fit"]["model"].partition(":")[0]: cell["outcome"]["values"]["accuracy"]
        for cell in cells
        if cell["metric"] == "accuracy" and cell["outcome"]["status"] == "ok"
    }
    assert accuracy["imported"] == accuracy["mine"] == accuracy["baseline"]


def test_the_checks_find_nothing(followed):
    _, printed = followed
    checks = [output for command, output in printed.items() if command.startswith("jembench plugin check")]
    assert len(checks) == 2
    for output in checks:
        assert re.search(r"\d+ passed", output)
        assert "failed" not in output


def test_what_was_installed_is_on_record(followed):
    folder, _ = followed
    plugins = set()
    for path in (folder / "runs" / "cells").iterdir():
        plugins |= set(json.loads(path.read_text())["provenance"]["plugins"])
    assert "my-ebm 0.1.0 [my-ebm = my_ebm:build]" in plugins
    assert any(plugin.startswith("sketch:build (sketch.py, sha256:") for plugin in plugins)
    assert any(plugin.startswith("sketch.py sha256:") for plugin in plugins)


@pytest.mark.parametrize("kind", ["model", "sampler", "metric", "dataset", "suite"])
def test_every_kind_was_written(kind, followed):
    folder, _ = followed
    assert (folder / ("my-ebm" if kind == "model" else f"my-{kind}") / "pyproject.toml").exists()
