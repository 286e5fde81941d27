"""Run from a folder elsewhere, in an environment that holds the wheels alone: does the installed
package work?

Usage: python smoke.py
"""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jembench
import jembench_suites

COMMAND = [str(Path(sys.executable).with_name("jembench"))]


def run(*arguments):
    """Run jembench and give what it prints."""
    finished = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def main():
    """Check where the package lies, that its data came along, and that the main command works; two
    commands at once.
    """
    for package in (jembench, jembench_suites):
        assert Path(package.__file__).is_relative_to(sys.prefix), (
            f"{package.__file__} is not the installed one"
        )
    recipes = {file.stem for file in Path(jembench_suites.__path__[0], "recipes").iterdir()}
    assert {"digits", "paper", "code"} <= recipes
    with ThreadPoolExecutor(2) as together:
        list(together.map(lambda part: part(), (runs, lists)))  # raises what a part raised
    print(f"jembench {jembench.__version__} works as installed in {Path(jembench.__file__).parent}")


def runs():
    """Models are trained once, shared and taken."""
    arguments = [
        "hybrid",
        "--models",
        "jem,baseline",
        "--metrics",
        "accuracy,ece,energy-gap",
        "--set",
        "epochs=0.2",
    ]
    arguments += ["--limit", "100", "--format", "json"]
    first = json.loads(run("run", *arguments))
    assert {row["name"] for row in first["rows"] if not row["source"]} == {"jem", "baseline"}, first
    assert json.loads(run("run", *arguments)) == first
    run("push", "baseline", "model.zip")  # the template of its card came along
    (fetched,) = json.loads(run("fetch", "model.zip", "--store", "theirs", "--format", "json"))
    assert fetched["differences"] == []


def lists():
    """Check that what is installed is listed without a problem, and write new plugins."""
    assert "hybrid" in run("list", "suites")
    models = {
        model["name"]: model for model in json.loads(run("list", "models", "--format", "json"))
    }
    assert {
        "jem",
        "jem-factored",
        "baseline",
        "adversarial",
        "igebm",
        "glow",
        "residual-flow",
    } <= models.keys()
    assert {
        "vera",
        "dat",
        "eb-jdat",
        "energy-finetuned",
        "diffusion",
        "trades",
        "smoothadv",
    } <= models.keys()
    assert not any(model["problem"] for model in models.values()), models
    executors = {
        executor["name"]: executor["problem"]
        for executor in json.loads(run("list", "executors", "--format", "json"))
    }
    assert executors == dict.fromkeys(("local", "processes", "ray", "slurm"), "")
    recipes = {
        recipe["name"]: recipe for recipe in json.loads(run("list", "recipes", "--format", "json"))
    }
    assert {
        "jem-factored-digits",
        "adversarial",
        "igebm-digits",
        "glow-digits",
        "residual-flow-digits",
        "vera-digits",
    } <= recipes.keys()
    assert not any(recipe["problem"] for recipe in recipes.values()), recipes
    run("plugin", "new", "model", "my-ebm", "--folder", "my-ebm")  # its templates came along
    assert Path("my-ebm", "my_ebm", "model.py").is_file()


if __name__ == "__main__":
    main()
