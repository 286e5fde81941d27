"""What was done stands in a table of attacks: in its title where it is common, else in the names of the rows."""

import pytest

from jembench.interfaces import Value
from jembench.report.layout import tables
from jembench.report.sections import build
from jembench.store.outcome import Outcome

BUDGET = "images=25,norm=l2,restarts=2,search=minimal,steps=10"


@pytest.fixture
def pgd(cell):
    """A cell of a model under PGD; ``defence`` is options of the metric, which its protocol repeats."""

    def make(model, level, defence="", budget=BUDGET, **protocol):
        options = {"refine": 0, **dict(part.split("=") for part in defence.split(",") if part), **protocol}
        parts = ",".join(f"{key}={value}" for key, value in options.items())
        outcome = Outcome(
            status="ok",
            protocol=f"pgd:data=digits,{budget},{parts}",
            values={"pgd-l2": Value(level, level - 1, level + 1, 25, "1/255", "higher")},
        )
        return cell(model, f"pgd:budget=quick{',' * bool(defence)}{defence}", outcome=outcome)

    return make


@pytest.fixture
def shown():
    def show(*cells):
        (grid,) = tables(build(cells))
        return grid, {row[0].value: row[1].value for row in grid.rows}

    return show


def test_a_model_is_beside_itself_refined_and_a_classifier_as_it_is(pgd, cell, shown):
    without = Outcome(status="na", reason="needs samples")
    grid, rows = shown(
        pgd("jem", 100),
        pgd("jem", 200, "refine=10", eot=5, grad="through"),
        pgd("baseline", 50),
        cell("baseline", "pgd:budget=quick,refine=10", outcome=without),
    )
    assert rows == {"jem": "100.0", "jem, refined 10": "200.0", "baseline": "50.0"}
    assert grid.title == (
        "Results · norm l2 · 25 images, 2 restarts, 10 steps · refined: 5 chains, gradient through · dataset digits · "
        "recipe digits · seed 0"
    )
    assert [note.text for note in grid.footnotes if note.mark] == ["refined 10: needs samples"]
    assert not any("†" in text.marks for row in grid.rows for text in row)


def test_two_gradients_never_look_alike(pgd, shown):
    grid, rows = shown(
        pgd("jem", 100, "refine=10", eot=5, grad="through"), pgd("jem", 300, "grad=bpda,refine=10", eot=5)
    )
    assert rows == {"jem, refined 10, through": "100.0", "jem, refined 10, bpda": "300.0"}
    assert "gradient" not in grid.title
    (alone, rows), (other, _) = (shown(pgd("jem", 1, "refine=10", eot=5, grad=grad)) for grad in ("through", "bpda"))
    assert rows == {"jem": "1.0"}
    assert "refined 10: 5 chains, gradient through" in alone.title
    assert "refined 10: 5 chains, gradient bpda" in other.title


def test_chains_are_told_where_they_differ(pgd, shown):
    _, rows = shown(*(pgd("jem", eot, f"eot={eot},refine=1", grad="through") for eot in (1, 5)))
    assert list(rows) == ["jem, refined 1, 1 chain", "jem, refined 1, 5 chains"]


def test_a_row_of_another_budget_is_marked(pgd, shown):
    fewer = BUDGET.replace("images=25", "images=20")
    grid, _ = shown(pgd("jem", 100), pgd("jem", 90, "refine=1", fewer, eot=1), pgd("jem", 50, "refine=2", eot=1))
    assert [bool("†" in row[1].marks) for row in grid.rows] == [False, True, False]
    assert "2 restarts, 10 steps" in grid.title
    assert "images" not in grid.title
    (note,) = [note.text for note in grid.footnotes if note.mark == "†"]
    assert note.endswith("do not compare: jem, refined 1: images=20; the others: images=25")


def test_other_metrics_stand_beside_the_model_as_it_is(pgd, cell, shown):
    grid, rows = shown(
        cell("jem", accuracy=Value(97.5, 95.0, 98.5, 397, "%", "higher")),
        pgd("jem", 100),
        pgd("jem", 200, "refine=1", eot=1),
    )
    assert rows == {"jem": "97.5", "jem, refined 1": "—"}
    assert [row[2].value for row in grid.rows] == ["100.0", "200.0"]
