"""Results made by hand, with arrays of every metric that has figures."""

import numpy as np
import pytest

from jembench.catalog.spec import Spec
from jembench.interfaces import Value
from jembench.report.figures import planning
from jembench.report.layout import Report
from jembench.store.outcome import Cell, FitKey, Outcome
from jembench.store.store import Store

IMAGES = 60
CLASSES = 4


def make_cell(
    metric,
    protocol="",
    values=None,
    *,
    model="jem",
    seed=0,
    recipe="digits",
    dataset="digits",
    **more,
):
    fit = FitKey(
        model=Spec(model),
        dataset=Spec(dataset),
        recipe=recipe,
        seed=seed,
        id=f"{model}{recipe}{dataset}{seed}",
    )
    values = {"value": Value(1.0, 0.5, 1.5, IMAGES)} if values is None else values
    outcome = Outcome(
        status="ok", protocol=protocol or metric, values=values, details=more.pop("details", {})
    )
    name = f"{fit.id}{metric}{more.get('limit')}"
    identity = "".join(letter for letter in name if letter.isalnum())
    return Cell(
        id=identity,
        fit=fit,
        metric=Spec(metric),
        outcome=outcome,
        provenance={"limit": more.get("limit")},
    )


def make_predictions(seed=0):
    rng = np.random.default_rng(seed)
    confidence = rng.uniform(0.3, 1, IMAGES)
    return {"confidence": confidence, "correct": rng.uniform(size=IMAGES) < confidence}


def make_scores(shift=1.0):
    rng = np.random.default_rng(1)
    return {"inside": rng.normal(size=IMAGES), "outside": rng.normal(size=IMAGES // 2) - shift}


def make_pictures(count=12, channels=1):
    rng = np.random.default_rng(2)
    return {
        "images": rng.integers(0, 256, (count, channels, 8, 8), dtype=np.uint8),
        "shown": rng.permutation(IMAGES)[:count],
        "predicted": np.arange(IMAGES) % CLASSES,
        "confidence": rng.uniform(size=IMAGES),
    }


def make_density():
    grid = np.arange(12).reshape(4, 3)
    rng = np.random.default_rng(3)
    names = ("top", "bottom", "top-confidence", "bottom-confidence", "highest", "random", "lowest")
    return {
        **make_pictures(),
        "log-px": rng.normal(-50, 4, IMAGES),
        "labels": np.arange(IMAGES) % CLASSES,
        **{name: rng.permutation(grid) for name in names},
    }


def make_neighbours():
    rng = np.random.default_rng(4)
    arrays = {name: make_pictures(5)["images"] for name in ("images", "neighbours")}
    for space in ("-digits-cnn", "-pixels"):
        arrays |= {
            f"distance{space}": rng.uniform(1, 3, IMAGES),
            f"test-distance{space}": rng.uniform(1, 2, 30),
        }
        arrays[f"nearest{space}"] = rng.integers(0, 1000, IMAGES)
    return arrays


def make_drift():
    rng, times = np.random.default_rng(9), np.array([0, 4, 10, 100])
    arrays = {"times": times, "trained": np.array(4), "energy-test": rng.normal(size=30)}
    for start in ("data", "noise"):
        arrays |= {
            f"{quantity}-{start}": rng.uniform(size=(4, 20))
            for quantity in ("energy", "nearest", "moved")
        }
        arrays |= {f"fid-{start}": rng.uniform(size=4)}
        arrays[f"images-{start}"] = rng.integers(0, 256, (4, 8, 1, 8, 8), dtype=np.uint8)
    return arrays


def make_truth():
    """A density that is the first number's, of which the model is the reverse."""
    true = np.repeat(np.arange(256.0), 256) / (256 * np.arange(256.0).sum())
    points = np.random.default_rng(10).integers(0, 256, (1200, 2), dtype=np.uint8)
    model = np.log(true[::-1] + 1e-12)
    return {
        "true-cells": true,
        "log-cells": model,
        "test": points,
        "samples": points[np.argsort(points[:, 0])],
    }


def make_attack(seed=0, *, channels=1):
    """Images of which the first two are misclassified, and the last one withstood the attack."""
    rng = np.random.default_rng(seed)
    image = rng.integers(0, 256, (IMAGES, channels, 8, 8), dtype=np.uint8)
    adversarial = (image / 255 + rng.normal(0, 0.05, image.shape)).clip(0, 1).astype(np.float32)
    adversarial[[0, 1, -1]] = image[[0, 1, -1]] / np.float32(255)
    change = (adversarial - image / 255).reshape(IMAGES, -1)
    distances = {
        "distance-linf": np.abs(change).max(axis=1),
        "distance-l2": np.linalg.norm(change, axis=1),
    }
    for distance, largest in zip(distances.values(), (1, 8 * np.sqrt(channels)), strict=True):
        distance[:2], distance[-1] = 0, largest
    label = np.arange(IMAGES) % CLASSES
    found = np.arange(IMAGES) < IMAGES - 1
    return {
        **distances,
        "index": rng.permutation(1000)[:IMAGES],
        "label": label,
        "found": found,
        "predicted": np.where(found, (label + 1) % CLASSES, label),
        "wrong": found.astype(float),
        "image": image,
        "adversarial": adversarial,
    }


def make_ends(classes=CLASSES, count=14):
    rng = np.random.default_rng(8)
    confidence = np.linspace(0.5, 1, count)
    return {
        "images": rng.integers(0, 256, (count, 1, 8, 8), dtype=np.uint8),
        "target": np.arange(count) % classes,
        "confidence": confidence,
        "reached": confidence > 0.9,
        "steps": rng.integers(1, 200, count),
    }


def make_attacks():
    """Cells of attacks, and their arrays."""
    spent = f"data=digits,images={IMAGES},restarts=20,steps=40"
    for number, (model, norm) in enumerate([("jem", "linf"), ("jem", "l2"), ("baseline", "linf")]):
        protocol = f"pgd:{spent},norm={norm},refine=0,search=minimal"
        yield make_cell(f"pgd:norm={norm}", protocol, model=model), make_attack(number)
    refined = "eot=5,grad=through,norm=linf,refine=10"
    yield make_cell(f"pgd:{refined}", f"pgd:{spent},{refined},search=minimal"), make_attack(3)
    yield (
        make_cell(
            "autoattack:eps=0.1", f"autoattack:data=digits,images={IMAGES},eps=0.1,norm=linf"
        ),
        make_attack(4),
    )
    yield (
        make_cell("boundary", f"boundary:data=digits,images={IMAGES},queries=9,refine=0"),
        make_attack(5, channels=3),
    )
    yield make_cell("transfer", f"transfer:{spent},eot=5,norm=linf,refine=10"), make_attack(6)
    yield make_cell("distal", "distal:data=digits,images=14,refine=0,threshold=0.9"), make_ends()


def make_everything():
    """Cells of all metrics with figures, and their arrays."""
    ece = {"ece": Value(2.0, 1.0, 3.5, IMAGES, "%", "lower")}
    bins = f"ece:bins=10,data=digits,images={IMAGES},split=test"
    for model in ("jem", "baseline"):
        for seed in (0, 1):
            yield (
                make_cell("ece:bins=10", bins, ece, model=model, seed=seed),
                make_predictions(seed),
            )
    yield (
        make_cell("ece:bins=10,scaling=temperature", f"{bins},scaling=temperature", ece),
        make_predictions(5),
    )
    for name in ("interp", "uniform"):
        auroc = {"auroc": Value(0.8, 0.7, 0.9, IMAGES, "", "higher")}
        metric = f"ood:score=max-py,set={name}"
        yield make_cell(metric, metric, auroc), make_scores()
    for model in ("jem", "baseline"):
        predictions = make_predictions(len(model))
        yield (
            make_cell("selective", "selective:coverage=0.8,score=max-py", model=model),
            {"score": predictions["confidence"], "correct": predictions["correct"]},
        )
        for severity in (1, 5):
            ends = {
                "accuracy": Value(90.0 - severity, 80.0, 95.0, IMAGES, "%"),
                "ece": Value(3.0, 2.0, 4.0, IMAGES, "%"),
            }
            metric = f"shift:score=log-px,set=corrupted:severity={severity}"
            yield (
                make_cell(
                    metric, metric, {**ends, "auroc": Value(0.6, 0.5, 0.7, IMAGES)}, model=model
                ),
                {},
            )
    grid = np.array([[0, 1, 2], [3, 4, -1], [5, 6, 7], [8, 9, 10]])
    yield (
        make_cell("class-samples", details={"source": "buffer"}),
        {**make_pictures(), "grid": grid},
    )
    yield make_cell("confident-samples"), make_pictures()
    yield make_cell("log-density"), make_density()
    ages = np.random.default_rng(6).geometric(0.01, IMAGES)
    yield make_cell("chain-age"), {"ages": ages, "predicted": np.arange(IMAGES) % CLASSES}
    yield make_cell("chain-drift"), make_drift()
    yield (
        make_cell("density-error", values={"kl": Value(0.5, None, None, 65536, "nats", "lower")}),
        make_truth(),
    )
    yield make_cell("neighbours"), make_neighbours()
    for top, kept in (("0.1", 100), ("0.5", 500)):
        protocol = f"is:images={kept},pooling=one-buffer,selection=model,splits=1,top={kept}/1000"
        yield (
            make_cell(
                f"is:selection=model,splits=1,top={top}",
                protocol,
                {"is": Value(7.0, 6.5, 7.5, kept)},
            ),
            {},
        )
    for steps in (5, 100):
        protocol = f"kid:images=1000,source=chains:steps={steps}"
        yield (
            make_cell(
                f"kid:source=fresh,steps={steps}", protocol, {"kid": Value(2.0, None, None, 1000)}
            ),
            {},
        )
    yield from make_attacks()


HISTORY = (
    "iteration,attempt,energy_data,energy_samples\n20,0,-1.5,-1.0\n40,0,-2.5,-30.0\n20,1,-2.0,\n"
)


@pytest.fixture
def cell():
    return make_cell


@pytest.fixture(scope="session")
def everything():
    return list(make_everything())


@pytest.fixture
def density_arrays():
    return make_density()


@pytest.fixture
def attack_arrays():
    return make_attack()


@pytest.fixture
def ends_arrays():
    return make_ends


@pytest.fixture(scope="session")
def store(tmp_path_factory, everything):
    """A store with everything in it, which no test changes."""
    store = Store(tmp_path_factory.mktemp("figures") / "runs")
    for number, (cell, arrays) in enumerate(everything):
        store.write_cell(cell, arrays)
        path = store.cell_path(cell)
        # a store gives its cells by their names
        path.rename(path.with_name(f"cell{number:02}-{cell.id}.json"))
    folder = store.fit_folder(everything[0][0].fit)
    folder.mkdir(parents=True)
    (folder / "history.csv").write_text(HISTORY)
    return store


@pytest.fixture(scope="session")
def planned(store):
    """Every figure of the store, by the name of its files; those of images are in test_examples."""
    every = planning.figures(Report(store.cells()), store, pytest.fail)
    found = [planned for planned in every if not planned.stem.startswith("examples-")]
    by_stem = {planned.stem: planned for planned in found}
    assert len(by_stem) == len(found)
    return by_stem
