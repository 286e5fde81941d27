"""Tables as LaTeX, compiled by a real pdflatex in articles of one and of two columns: they fit."""

import os
import re
import shutil
import subprocess

import pytest

from jembench.catalog.spec import Spec
from jembench.experiment.names import DisplayNames
from jembench.interfaces import Value
from jembench.report.formats import render
from jembench.report.layout import Report
from jembench.report.published import published_numbers
from jembench.store.outcome import Cell, FitKey, Outcome

pytestmark = pytest.mark.skipif(
    not shutil.which("pdflatex"), reason="pdflatex is not installed: tests/pages/packages.sh"
)

NAMES = [
    "jem",
    r"a_b&c%d#e${}~^\<>|",
    "igebm:conditional=false,l2=0.1,width=16,net=a-very-long-name-without-end",
    "GAN ε∞",
]
METRICS = {
    "accuracy": Value(97.481, 95.4, 98.6, 397, "%", "higher"),
    "ece": Value(1.4321, 0.981, 2.713, 397, "%", "lower"),
    "energy-gap": Value(-24_700_000.0, -25_500_000.0, -23_900_000.0, 397, "nats", ""),
    "certified-l2@128/255": Value(16.0, 6.2, 35.1, 25, "%", "higher"),
    "iteration-time": Value(0.012345, 0.0119, 0.0133, 88, "s", "lower"),
    "is-digits-cnn": Value(9.3771, 9.31, 9.45, 1000, "", "higher"),
}


def cells(count):
    """Models with long and odd names, by several seeds, of which one metric failed."""
    for number in range(count):
        model = f"model-{number}"
        for seed in (0, 1):
            recipe = (
                "digits"
                if number % 2
                else "digits+chains.sampler=pcd:steps=4,noise=0.005,start=class-gaussian"
            )
            fit = FitKey(
                model=Spec(model),
                dataset=Spec("digits"),
                recipe=recipe,
                seed=seed,
                id=f"{number} {seed}",
            )
            for label, value in METRICS.items():
                values = {label: value._replace(value=value.value + seed)}
                outcome = Outcome(status="ok", protocol=f"{label}:data=digits", values=values)
                if (number, label) == (1, "ece"):
                    outcome = Outcome(
                        status="failed",
                        reason="Diverged:\n100% of `x_1` ~ " + "a/very/long/path" * 9,
                    )
                yield Cell(
                    id=f"{fit.id} {label}", fit=fit, metric=Spec("accuracy"), outcome=outcome
                )


@pytest.fixture(scope="module")
def tables():
    recipes = {(cell.fit.model, cell.fit.recipe): None for cell in cells(4)}
    names = DisplayNames(models=dict(zip(recipes, NAMES, strict=True)))
    few = Report(
        list(cells(4)),
        published=published_numbers(["jem-iclr2020/table1", "later-work/hybrid"]),
        names=names,
    )
    many = Report(list(cells(12)), names=names)
    return lambda format: "\n".join(render(results, format) for results in (few, many))


@pytest.mark.parametrize(
    ("options", "formats"),
    [
        ("10pt", ["latex:width=345pt,label=a", "latex:interval=pm"]),
        ("10pt,twocolumn", ["latex", "latex:width=page,label=a"]),
    ],
)
def test_everything_compiles_and_fits(options, formats, tables, tmp_path):
    packages = r"\usepackage{booktabs, adjustbox}\extrafloats{200}"
    head = rf"\documentclass[{options}]{{article}}{packages}\begin{{document}}"
    content = "\\clearpage\n".join(tables(format) for format in formats)
    # LaTeX keeps no more than some floats: the tables of a paper are fewer
    content = content.replace(r"\begin{table", "\\clearpage\n\\begin{table")
    (tmp_path / "paper.tex").write_text(f"{head}\n{content}\n\\end{{document}}\n")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    environment = {**os.environ, "TEXMFVAR": str(tmp_path)}  # where it may make a font
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, errors="replace"
    )
    assert done.returncode == 0, done.stdout[-2000:]
    log = (tmp_path / "paper.log").read_text(errors="replace")
    assert re.findall(r"Overfull .*|Float too large.*|.*multiply defined.*", log) == []
    assert (tmp_path / "paper.pdf").stat().st_size > 10_000
