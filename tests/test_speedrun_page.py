"""The page of the recipe speedrun: its tables and its prose have the numbers that were measured."""

import csv
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "speedrun.md").read_text(encoding="utf-8")
PROSE = " ".join(PAGE.split())
RESPECTS = {
    "accuracy, %": ("accuracy", 1),
    "ECE, %": ("ece", 1),
    "NLL, nats": ("nll", 3),
    "AutoAttack, %": ("autoattack-l2@64/255", 1),
}
COLUMNS = {
    "images": RESPECTS | {"PGD, %": ("pgd-l2@64/255", 1), "FID": ("fid-cifar10-jpeg-cnn", 2)},
    "digits": RESPECTS | {"PGD, %": ("pgd-l2@0.7", 0), "FID": ("fid-digits-cnn", 2)},
}


def values(data):
    """Return the rows of a file of results by the name of the model and the label of the value."""
    text = (ROOT / f"benchmarks/results/2026-11-29-speedrun-{data}.csv").read_text()
    return {
        (row["name"], row["label"] if row["label"] != "auroc" else row["metric"]): row
        for row in csv.DictReader(text.splitlines())
    }


def tables(data):
    """Yield lines of a section's tables: score, heading, model and text."""
    title = {"images": "## Real images of 16x16", "digits": "## What each part brings"}[data]
    section = PAGE.partition(title)[2].partition("\n## ")[0]
    score = header = None
    for line in section.splitlines():
        if line.startswith("AUROC"):
            score = "grad-norm" if "gradient" in line else "log-px"
        cells = (
            [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("| ") else []
        )
        if cells and cells[0] == "model":
            header = cells
        elif cells:
            for heading, text in zip(header[1:], cells[1:], strict=True):
                yield score, heading, cells[0], text


@pytest.mark.parametrize("data", ["images", "digits"])
def test_the_tables(data):
    measured, shown = values(data), 0
    for score, heading, model, text in tables(data):
        label, digits = COLUMNS[data].get(heading, (None, 3))
        if label is None:
            label = (
                f"ood:score=grad-norm,set={heading}"
                if score == "grad-norm"
                else f"ood:set={heading}"
            )
        row = measured.get((model, label))
        spread = f" ± {float(row['sd']):.{digits}f}" if row and row["sd"] else ""
        assert text == (f"{float(row['value']):.{digits}f}{spread}" if row else "N/A")
        shown += 1
    assert shown > 30


def test_the_prose():
    measured = values("images")

    def interval(model, label):
        row = measured[model, label]
        return f"{float(row['value']):.1f} % [{float(row['low']):.1f}, {float(row['high']):.1f}]"

    def loss(name):
        of_baseline, of_jem = (
            float(measured[model, f"ood:set={name}"]["value"]) for model in ("baseline", "jem")
        )
        return f"{of_baseline - of_jem:.2f}".removeprefix("0")

    attack = "autoattack-l2@64/255"
    assert (
        f"{interval('jem', attack)} under AutoAttack, the classifier {interval('baseline', attack)}"
        in PROSE
    )
    assert (
        f"`halves` and `inverted` are {loss('halves')} and {loss('inverted')} below the classifier"
        in PROSE
    )
    for name, score in (("phases", "phases"), ("halves", "halves"), ("inverted", "inverted")):
        means = [
            f"{float(measured[model, f'ood:set={score}']['value']):.2f}".removeprefix("0")
            for model in ("jem", "without chains")
        ]
        assert re.search(rf"`{name}` \({means[0]}(, without them| and) {means[1]}", PROSE)
    fid = measured["jem", "fid-cifar10-jpeg-cnn"]
    low, value, high = (
        f"{float(fid[key]):.2f}".removeprefix("0") for key in ("low", "value", "high")
    )
    assert f"a FID of {value} [{low}, {high}]" in PROSE
    passes = [
        float(measured[model, "training-passes"]["value"]) / 7640 for model in ("jem", "baseline")
    ]
    assert re.search(
        rf"passes {passes[0]:.0f} and {passes[1]:.0f} images through the network", PROSE
    )
