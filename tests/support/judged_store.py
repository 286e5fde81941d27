"""Claims, and the values that judge them, made by hand."""

import numpy as np

from jembench.catalog.spec import Spec
from jembench.experiment.claims import Paper, of_table
from jembench.interfaces import Value
from jembench.report.claims import judge
from jembench.store.outcome import Cell, FitKey, Outcome

PAPER = Paper("A paper", "Somebody", "")
N = 300


class JudgedStore:
    """Cells with their arrays, by hand."""

    def __init__(self):
        self.cells = []
        self.arrays = {}

    def add(
        self,
        model,
        metric,
        value,
        arrays,
        *,
        recipe="digits",
        seed=0,
        dataset="digits",
        protocol=None,
        details=(),
        ends=(None, None),
    ):
        fit = FitKey(
            model=Spec(model),
            dataset=Spec(dataset),
            recipe=recipe,
            seed=seed,
            id=f"{model}/{dataset}/{recipe}/{seed}",
        )
        spec = Spec(metric)
        label = "auroc" if spec.name == "ood" else spec.name
        unit = "%" if label == "accuracy" else ""
        outcome = Outcome(
            status="ok",
            protocol=protocol or metric,
            values={label: Value(value, *ends, N, unit)},
            details=dict(details),
        )
        cell = Cell(id=f"{fit.id}/{metric}", fit=fit, metric=spec, outcome=outcome)
        self.cells.append(cell)
        self.arrays[cell.id] = arrays

    def accuracy(self, model, share, **more):
        correct = np.arange(N) < share * N
        self.add(model, "accuracy", 100 * correct.mean(), {"correct": correct}, **more)

    def ood(self, model, metric, shift):
        rng = np.random.default_rng(0)
        inside = rng.normal(shift, 1, N)
        outside = rng.normal(0, 1, N)
        auroc = (inside[:, None] > outside).mean()
        self.add(model, metric, auroc, {"inside": inside, "outside": outside})

    def judge(self, *claims):
        return judge(claims, self.cells, lambda cell: self.arrays[cell.id], resamples=1000)

    def verdicts(self, *claims):
        return [finding.row.verdict for finding in self.judge(*claims)]


def claim(**fields):
    """Return the claim that JEM's accuracy is higher than the baseline's.

    Args:
        fields: in the form of a file, in place of those of that claim.
    """
    table = {
        "id": "one",
        "text": "One",
        "where": "Table 1",
        "metric": "accuracy",
        "measure": ["jembench run hybrid"],
    }
    table |= {"than": "baseline"} | fields
    if "unmeasured" in table:
        table = {key: table[key] for key in ("id", "text", "where", "unmeasured")}
    elif "lower" not in table:
        table.setdefault("higher", "jem")
    return of_table("mine", table, PAPER)
