"""The page of the field: its tables, verdicts and prose have the numbers that were measured."""

import csv
import re
from collections import Counter
from itertools import takewhile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "field.md").read_text()
PROSE = " ".join(PAGE.split())
LINES = [
    [cell.strip("`") for cell in line.split(" | ")]
    for line in re.findall(r"^\| (.+) \|$", PAGE, re.MULTILINE)
]

ASCENTS = 'fid:conditional=true,sampler="ascent:steps=30,step_size=0.2,start=permuted"'
FIELD = {
    "accuracy, %": ("accuracy", "accuracy", 1),
    "ECE, %": ("ece", "ece", 1),
    "FID": ("fid", "fid-digits-cnn", 2),
    "AUROC, near": ("ood-group:group=near", "auroc", 3),
    "AUROC, far": ("ood-group:group=far", "auroc", 3),
    "L-inf .1, %": ("pgd:budget=quick,eps=0.1,images=200", "pgd-linf@0.1", 0),
    "L2 .7, %": ("pgd:budget=quick,eps=0.7,images=200,norm=l2", "pgd-l2@0.7", 0),
}
IMAGES = {
    "accuracy, %": ("accuracy", "accuracy", 1),
    "ECE, %": ("ece", "ece", 1),
    "scaled, %": ("ece:scaling=temperature", "ece-scaled", 1),
    "FID": ("fid:features=cnn", "fid-cifar10-jpeg-cnn", 2),
    **{
        name: (f"ood:set={name}", "auroc", 2)
        for name in ("halves", "uniform", "constant", "permuted")
    },
    "L-inf 4/255, %": ("pgd:eps=4/255,images=200,restarts=2,steps=10", "pgd-linf@4/255", 1),
    "L2 64/255, %": ("pgd:eps=64/255,images=200,norm=l2,restarts=2,steps=10", "pgd-l2@64/255", 1),
    "training, hours": ("iteration-time", "training-hours", 3),
}
"""The metric, the label and the digits of each column."""


def rows(name, date="*"):
    """Return the rows of the newest file of a name."""
    *_, newest = sorted((ROOT / "benchmarks/results").glob(f"{date}-field-{name}.csv"))
    return list(csv.DictReader(newest.read_text().splitlines()))


def by_label(name, date="*"):
    return {(row["name"], row["metric"], row["label"]): row for row in rows(name, date)}


def lines_below(header, values):
    """Return the lines of the table with a header; each is of a model that has values."""
    names = {name for name, *_ in values}
    return list(takewhile(lambda line: line[0] in names, LINES[LINES.index(header) + 1 :]))


VALUES, FORMER = by_label("digits"), by_label("digits", "2026-11-27")
CLAIMS = rows("claims")
COSTS = {
    row["name"]: (float(row["training_cpu_seconds"]), float(row["evaluation_cpu_seconds"]))
    for row in rows("costs")
}


def side(row):
    """Return the side of a claim on which its interval over seeds lies; open: on both."""
    sign = 1 if row["direction"] == "higher" else -1
    low, high = (
        sign * float(row[end]) + float(row["within"]) for end in ("training_low", "training_high")
    )
    return "for" if min(low, high) > 0 else "against" if max(low, high) < 0 else "open"


@pytest.mark.parametrize(
    ("data", "columns", "models"), [("digits", FIELD, 19), ("images", IMAGES, 14)]
)
def test_the_tables_of_results(data, columns, models):
    values = by_label(data)
    (header,) = (line for line in LINES if set(columns) <= set(line))
    shown = lines_below(header, values)
    assert len(shown) == models
    for name, *line in shown:
        for heading, text in zip(header[1:], line, strict=True):
            metric, label, digits = columns[heading]
            row = values.get((name, metric, label))
            spread = f" ± {float(row['sd']):.{digits}f}" if row and row["sd"] else ""
            assert text == (f"{float(row['value']):.{digits}f}{spread}" if row else "N/A")


def test_the_two_trainings_of_real_images():
    of_device = [by_label("images"), by_label("images-cpu")]
    (header,) = (line for line in LINES if line[0] == "model, GPU and CPU")
    columns = [next(key for key in IMAGES if key.startswith(heading)) for heading in header[1:]]
    shown = lines_below(header, of_device[1])
    assert len(shown) == 8
    pairs = {}
    for name, *line in shown:
        for (metric, label, digits), text in zip(map(IMAGES.get, columns), line, strict=True):
            rows = [values.get((name, metric, label)) for values in of_device]
            texts = [
                f"{float(row['value']):.{digits}f}" if row and row["value"] else "N/A"
                for row in rows
            ]
            assert text == ", ".join(texts).replace("N/A, N/A", "N/A")
            if "N/A" not in texts:
                pairs[name, label, metric] = [float(row["value"]) for row in rows]
    for quantity in ("accuracy", "fid-cifar10-jpeg-cnn"):
        first, second = zip(
            *(pair for (_, label, _), pair in pairs.items() if label == quantity), strict=True
        )
        assert sorted(range(len(first)), key=first.__getitem__) == sorted(
            range(len(second)), key=second.__getitem__
        )
    moved = {key: abs(one - other) for key, (one, other) in pairs.items()}
    most = max(
        value
        for (name, label, _), value in moved.items()
        if label == "accuracy" and name != "igebm"
    )
    assert (
        f"{most:.1f} points at most, but for IGEBM's ({moved['igebm', 'accuracy', 'accuracy']:.1f})"
        in PROSE
    )
    of_jem = sorted(
        moved["jem", "auroc", f"ood:set={name}"] for name in ("uniform", "constant", "permuted")
    )
    assert f"moves by {of_jem[0]:.2f} to {of_jem[-1]:.2f} on".replace("0.", ".") in PROSE
    for name in ("uniform", "constant", "permuted"):
        for values in of_device:
            low, high = (
                float(values["jem", f"ood:set={name}", "auroc"][end]) for end in ("low", "high")
            )
            assert round((high - low) / 2, 2) == 0.02


def test_the_recipes_of_today():
    with (ROOT / "benchmarks/results/2026-11-29-images-today.csv").open() as lines:
        values = {(row["name"], row["metric"], row["label"]): row for row in csv.DictReader(lines)}
    (header,) = (line for line in LINES if line[0] == "model, today")
    shown = lines_below(header, values)
    assert len(shown) == 4
    for name, *line in shown:
        for heading, text in zip(header[1:], line, strict=True):
            metric, label, digits = next(
                column for key, column in IMAGES.items() if key.startswith(heading)
            )
            row = values.get((name, metric, label))
            assert text == (f"{float(row['value']):.{digits}f}" if row else "N/A")
    former = by_label("images-cpu")["jem", "accuracy", "accuracy"]
    accuracies = [float(row["value"]) for row in (former, values["jem", "accuracy", "accuracy"])]
    assert f"has {accuracies[1] - accuracies[0]:.1f} points of accuracy more" in PROSE


def test_the_verdicts():
    judged = [line for line in LINES if line[0] in {row["claim"] for row in CLAIMS}]
    for (claim, *_, difference, where, verdict), row in zip(judged, CLAIMS, strict=True):
        value, low, high = (
            float(row[key]) for key in ("difference", "training_low", "training_high")
        )
        assert (claim, difference, verdict) == (
            row["claim"],
            f"{value:.3g} [{low:.3g}, {high:.3g}]",
            row["verdict"],
        )
        assert where == side(row)
    verdicts = Counter(row["verdict"] for row in CLAIMS)
    assert (verdicts["held"], verdicts["against"]) == (11, 2)
    before = Counter(row["verdict"] for row in rows("claims", "2026-11-27"))
    assert before["held"] == 5
    assert "five claims hold; within each paper eleven do, and two are refuted" in PROSE
    sides = Counter(map(side, CLAIMS))
    assert (
        f"Of the {len(CLAIMS)} intervals over seeds {sides['for']} lie on the side of the claim, "
        f"{sides['against']} against it, and {sides['open']} hold both"
    ) in PROSE


def test_the_costs():
    shown = [line for line in LINES if line[0] in COSTS and len(line) == 3 and line[1].isdigit()]
    assert shown == [
        [name, f"{training:.0f}", f"{evaluation:.0f}"]
        for name, (training, evaluation) in COSTS.items()
    ]
    report = (ROOT / "benchmarks/results/2026-11-27-field-digits.md").read_text()
    training, evaluation = (
        f"{3 * sum(seconds):,.0f}" for seconds in zip(*COSTS.values(), strict=True)
    )
    assert (
        f"| training of 54 fits | {training} |\n| their evaluation, 717 cells | {evaluation} |"
        in report
    )
    starts = int(re.search(r"starts of 67 worker processes \| (\d+)", report)[1])
    minutes = (3 * sum(map(sum, COSTS.values())) + starts) / 60
    assert (
        f"took {minutes:.0f} CPU minutes in all, of which {starts / 60:.0f} were the starts of 67 "
        "processes" in PROSE
    )
    assert (
        f"VERA's training takes {COSTS['vera'][0]:.0f} CPU seconds, JEM's {COSTS['jem'][0]:.0f}"
        in PROSE
    )


def column(heading, names=None):
    metric, label, _ = FIELD[heading]
    found = {
        name: float(row["value"]) for (name, *key), row in VALUES.items() if key == [metric, label]
    }
    return {name: found[name] for name in names} if names else found


def highest(heading):
    values = column(heading)
    return max(values, key=values.get)


def text(heading, name):
    """A value as the prose writes it: a share without its 0 before the point."""
    digits = FIELD[heading][2]
    value = f"{column(heading)[name]:.{digits}f}"
    return value.removeprefix("0") if digits > 1 else value


PASSES = ("cost", "training-passes")


def spread(row, digits):
    """A value and its standard deviation over seeds."""
    return f"{float(row['value']):.{digits}f} ± {float(row['sd']):.{digits}f}"


def former(metric, label, digits):
    """A value of DAT before its loss was corrected."""
    return f"{float(FORMER['DAT', metric, label]['value']):.{digits}f}"


def test_what_the_joint_view_says():
    fid, linf, l2, near, far = ("FID", "L-inf .1, %", "L2 .7, %", "AUROC, near", "AUROC, far")
    lowest = sorted(column(fid), key=column(fid).get)[:2]
    assert set(lowest) == {"jem", "jem-factored"}
    best = {heading: highest(heading) for heading in ("accuracy, %", near, linf, l2)}
    assert best.pop(linf) in ("adversarial", "trades")
    assert best == {"accuracy, %": "adversarial", near: "speedrun", l2: "ratio"}
    unsure = column(
        "ECE, %", ("First stage of DAT", "trades", "weat", "ratio", "smoothadv")
    ).values()
    factored = ("jem-factored", "igebm")
    flat, right = (column(heading, factored).values() for heading in ("ECE, %", "accuracy, %"))
    flows = [column(heading)[name] for heading in (linf, l2) for name in ("glow", "residual-flow")]
    assert max(flows) < min(column(linf, column(linf).keys() - {"glow", "residual-flow"}).values())
    ascents = {
        name: spread(row, digits)
        for name, digits in {
            "DAT": 1,
            "trades": 0,
            "First stage of DAT": 0,
            "ratio": 0,
            "baseline": 0,
        }.items()
        if (row := VALUES[name, ASCENTS, "fid-digits-cnn"])
    }
    gain = column(linf)["eb-jdat"] - column(linf)["jem"]
    for sentence in (
        f"`jem` and `jem-factored` have the lowest FID ({text(fid, 'jem')} and "
        f"{text(fid, 'jem-factored')})",
        f"`adversarial` the highest accuracy ({text('accuracy, %', 'adversarial')} %)",
        f"`speedrun` and `vera` the highest near AUROC ({text(near, 'speedrun')} and "
        f"{text(near, 'vera')})",
        f"the highest robust accuracy in L-inf ({text(linf, 'trades')} %), `ratio` in L2 "
        f"({text(l2, 'ratio')} %)",
        f"more robust than the classifier** ({text(linf, 'jem')} and {text(linf, 'baseline')} % "
        "in L-inf)",
        f"near outliers less well ({text(near, 'jem')} and {text(near, 'baseline')})",
        f"gains {gain:.0f} points in L-inf over JEM, and the FID rises from {text(fid, 'jem')} to "
        f"{text(fid, 'eb-jdat')}",
        f"less sure than right (ECE of {min(unsure):.0f} to {max(unsure):.0f} %)",
        f"the FID is {ascents['DAT']} on DAT, {ascents['trades']} on `trades`, "
        f"{ascents['First stage of DAT']} on DAT's first stage, {ascents['ratio']} on `ratio` "
        f"and {ascents['baseline']} on the baseline",
        f"selected on validation images, 30 with each seed, and an FID of {column(fid)['DAT']:.1f}",
        f"the FID of the ascents was {spread(FORMER['DAT', ASCENTS, 'fid-digits-cnn'], 1)}, that "
        f"of its own samples of {former('cost', 'sample-passes', 0)} steps, where the curriculum "
        f"ended, {former('fid', 'fid-digits-cnn', 1)}, accuracy {former(*FIELD['accuracy, %'])} %, "
        f"near AUROC {former(*FIELD[near]).removeprefix('0')}, and robust accuracy "
        f"{former(*FIELD[linf])} % in L-inf and {former(*FIELD[l2])} % in L2",
        f"passes {float(VALUES['DAT', *PASSES]['value']):,.0f} images through the network in "
        f"place of {float(FORMER['DAT', *PASSES]['value']):,.0f}",
        f"({min(flows):.0f} to {max(flows):.0f} %), though their densities are exact and Glow's "
        f"near AUROC is {text(near, 'glow')}",
        f"robust in L2 ({text(l2, 'diffusion')} %), less so in L-inf ({text(linf, 'diffusion')} %)",
        f"{COSTS['Energy fine-tuning'][0]:.0f} CPU seconds after the baseline raise the near "
        f"AUROC from {text(near, 'baseline')} to {text(near, 'Energy fine-tuning')} and the far "
        f"one from {text(far, 'baseline')} to {text(far, 'Energy fine-tuning')}",
        f"the ECE of `jem-factored` and `igebm` is {min(flat):.0f} to {max(flat):.0f} %",
        f"right for {min(right):.0f} to {max(right):.0f} % of the images",
    ):
        assert sentence in PROSE, sentence
