"""The paper's rows beside ours, in reports of a store like that of a run on CIFAR-10, for which
nothing was trained.
"""

import pytest

from jembench.api.stored import OpenStore
from jembench.catalog.spec import Spec, stable_hash
from jembench.experiment import recipe as recipes
from jembench.experiment import suite as suites
from jembench.experiment.crossing import presentation
from jembench.interfaces import Value
from jembench.metrics.base import describe_test_images
from jembench.metrics.generation import FID, IS
from jembench.store.outcome import Cell, FitKey, Outcome
from jembench.store.store import Store

INCEPTION = "inception-2015-12-05@6726825d"
MODELS = ("jem", "baseline")


def outcome(metric):
    asked = Spec(metric)
    options = dict(asked.options)
    parts, label, unit = (
        describe_test_images(10_000) | {"data_noise": options.get("data_noise", 0)},
        asked.name,
        "%",
    )
    if asked.name == "ece":
        parts["bins"] = 20
    elif asked.name == "ood":
        parts |= {
            "set": options["set"],
            "score": options.get("score", "log-px"),
            "outliers": 26_032,
            "content": "0a",
        }
        label, unit = "auroc", ""
    elif asked.name in ("is", "fid"):
        own = (
            {"splits": 10}
            if asked.name == "is"
            else {"reference": "train", "reference_images": 50_000}
        )
        kept = (IS() if asked.name == "is" else FID()).description(10_000, 10_000, "buffer")
        parts, unit = {"features": INCEPTION, "implementation": "torch-fidelity", **own, **kept}, ""
    named = sorted({"data": "cifar10", **parts}.items())
    protocol = str(Spec.of(asked.name, dict(named)))
    return Outcome(
        status="ok", protocol=protocol, values={label: Value(0.9, 0.8, 0.95, 10_000, unit)}
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Every accuracy, ECE, IS, FID and AUROC of two suites on CIFAR-10."""
    root = Store(tmp_path_factory.mktemp("cifar10") / "runs")
    for name in ("hybrid", "ood"):
        suite = suites.load(name).replaced(datasets=["cifar10"])
        for model in MODELS:
            recipe = recipes.default(model, "cifar10", suite.runs[0].recipe)
            fit = FitKey(
                model=Spec(model), dataset=Spec("cifar10"), recipe=recipe, seed=0, id=model
            )
            (part,), _ = presentation(suite, [fit])
            for metric in part.rows[fit.names]:
                if Spec(metric).name in ("accuracy", "ece", "is", "fid", "ood"):
                    cell = Cell(
                        id=stable_hash([model, metric]),
                        fit=fit,
                        metric=Spec(metric),
                        outcome=outcome(metric),
                    )
                    root.write_cell(cell, {})
    return OpenStore(root.root)


def rows_of(table):
    """The texts of each row under the headings, by its first."""
    return {
        row[0].value: dict(zip([heading.label for heading in table.headings], row, strict=True))
        for row in table.rows
    }


def test_table_1_has_the_rows_of_the_paper(store):
    (ours,) = store.results("hybrid").document.tables()
    columns = ("accuracy", "accuracy*", "Inception score", "FID")
    values_of_rows = {
        name: [row[column].value for column in columns] for name, row in rows_of(ours).items()
    }
    assert {"jem", "baseline"} <= values_of_rows.keys()
    assert {
        name.partition(" · ")[0]: values
        for name, values in values_of_rows.items()
        if name not in MODELS
    } == {
        "Residual Flow": ["70.3", "—", "—", "46.4"],
        "Glow": ["67.6", "—", "—", "48.9"],
        "IGEBM": ["49.1", "—", "—", "—"],
        "JEM p(x|y) factored": ["—", "30.1", "—", "61.8"],
        "JEM": ["—", "92.9", "—", "38.4"],
        "Wide-ResNet (baseline)": ["—", "95.8", "—", "—"],
        "SNGAN": ["—", "—", "8.59", "25.5"],
        "NCSN": ["—", "—", "8.91", "25.32"],
    }
    (mark,) = rows_of(ours)["JEM · published"]["FID"].marks
    assert {note.mark: note.text for note in ours.footnotes}[mark] == (
        "same quantity, protocol incompletely stated there: "
        "feature network, images, pooling, reference, "
        "reference images, selection, source"
    )
    assert rows_of(ours)["JEM · published"][columns[1]].marks == ()


def test_table_7_stands_beside_ours_as_a_whole(store):
    tables = store.results("ood").document.tables()
    published = [
        row for table in tables for row in table.rows if row[1].value.endswith(" · published")
    ]
    assert sum(text.value != "—" for row in published for text in row[2:]) == 72
    assert not any(table.title.startswith("Published") for table in tables)


def test_a_model_of_a_paper_is_one_line_of_the_joint_view_with_its_auroc_on_svhn(store):
    metrics = ["accuracy:data_noise=0.03", "fid", "ood:data_noise=0.03*"]
    (ours,) = store.results("joint", metrics=metrics).document.tables()
    rows = rows_of(ours)
    assert [rows["JEM · published"][column].value for column in ("accuracy", "FID", "AUROC")] == [
        "92.9",
        "38.4",
        "0.67",
    ]
    assert rows["Residual Flow · published"]["AUROC"].value == "—"
    assert all(
        cell.row.source
        for name in rows.keys() - {*MODELS}
        for cell in rows[name].values()
        if cell.row
    )
