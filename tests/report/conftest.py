"""Cells for the report's tests, made by hand."""

import pytest

from jembench.catalog.spec import Spec
from jembench.interfaces import Value
from jembench.store.outcome import Cell, FitKey, Outcome


def make_cell(
    model="jem",
    metric="accuracy",
    *,
    seed=0,
    dataset="digits",
    recipe="digits",
    outcome=None,
    **values,
):
    """A cell whose outcome is given, or is ok with the values of the labels (``_`` stands for
    ``-``).
    """
    fit = FitKey(
        model=Spec(model), dataset=Spec(dataset), recipe=recipe, seed=seed, id=f"{model}{seed}"
    )
    named = {label.replace("_", "-"): value for label, value in values.items()}
    outcome = outcome or Outcome(
        status="ok", protocol=f"{metric}:data={dataset},images=397", values=named
    )
    return Cell(id=f"{fit.id}{metric}", fit=fit, metric=Spec(metric), outcome=outcome)


def make_full():
    """Three models x six metrics; the baseline has no samples, one FID failed."""
    no_samples = Outcome(status="na", reason="needs samples: baseline has logits | energy only")
    broken = Outcome(
        status="failed",
        reason="Diverged: a feature\nis not 100% finite_",
        traceback="Traceback ...",
    )
    for shift, model in enumerate(["jem", "jem-factored", "baseline"]):
        generates = model != "baseline"
        yield make_cell(
            model, accuracy=Value(97.481 - shift, 95.4 - shift, 98.6 - shift, 397, "%", "higher")
        )
        yield make_cell(model, "ece", ece=Value(1.4321 + shift, 0.981, 2.713, 397, "%", "lower"))
        yield make_cell(model, "nll", nll=Value(0.09134, 0.0632, 0.1234, 397, "nats", "lower"))
        score = {"is_digits_cnn": Value(9.3771, 9.31, 9.45, 1000, "", "higher")}
        yield (
            make_cell(model, "is", **score)
            if generates
            else make_cell(model, "is", outcome=no_samples)
        )
        fid = {"fid_digits_cnn": Value(21.371, 19.1, 24.2, 1000, "", "lower")}
        outcome = {"jem-factored": broken, "baseline": no_samples}.get(model)
        yield (
            make_cell(model, "fid", outcome=outcome) if outcome else make_cell(model, "fid", **fid)
        )
        yield make_cell(
            model,
            "iteration-time",
            iteration_time=Value(0.012345, 0.0119, 0.0133, 88, "s", "lower"),
        )


@pytest.fixture(scope="session")
def cell():
    return make_cell


@pytest.fixture
def full_cells():
    return list(make_full())
