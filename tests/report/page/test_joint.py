"""The joint view: which values stand in it."""

from jembench.interfaces import Value
from jembench.report.page.joint import joint
from jembench.report.sections import build
from jembench.store.outcome import Outcome


def value(number=1.0, low=0.5, high=2.0):
    return Value(number, low, high, 9, "", "higher")


def views(cells):
    return list(joint(build(cells)))


def test_the_first_value_of_each_metric_under_the_fewest_options(cell):
    (view,) = views(
        [
            cell(metric="accuracy", accuracy=value()),
            cell(metric="fid", fid_cnn=value()),
            cell(metric="fid:source=fresh,steps=10", fid_cnn=value()),
            cell(metric="ood:set=interp", auroc=value(), fpr95=value()),
            cell(metric="ood:set=uniform", auroc=value(), fpr95=value()),
            cell(metric="ood:score=max-py,set=uniform", auroc=value(), fpr95=value()),
            cell(metric="pgd:budget=quick", pgd_linf=value(), success=value()),
            cell(metric="pgd:budget=quick,norm=l2", pgd_l2=value()),
            cell(metric="pgd:budget=quick,refine=10", pgd_linf=value()),
            cell(metric="iteration-time", time=value()),
        ]
    )
    assert [heading.label for heading in view.table.headings] == [
        *("model", "accuracy", "fid-cnn", "auroc (interp)", "auroc (uniform)", "pgd-linf", "pgd-l2")
    ]
    assert view.groups == (("Accuracy", 1), ("Generation", 1), ("Out-of-distribution", 2), ("Robustness", 2))


def test_every_model_has_a_row_whatever_it_lacks(cell):
    (view,) = views([cell("a", accuracy=value(4, 3, 5)), cell("b", "ece", ece=value(1, None, None))])
    assert [[text.value for text in row] for row in view.table.rows] == [
        ["a", "4.0", "not run"],
        ["b", "not run", "1.000"],
    ]
    assert view.scales == (None, (3, 5), None)


def test_each_dataset_has_a_view_and_rows_say_what_differs(cell):
    found = views(
        [cell(recipe="r", accuracy=value()), cell(recipe="s", accuracy=value()), cell(dataset="b", accuracy=value())]
    )
    assert [view.table.title for view in found] == ["All respects · dataset digits", "All respects · dataset b"]
    assert [heading.label for heading in found[0].table.headings] == ["model", "recipe", "accuracy"]
    assert len(found[0].scales) == 3


def test_no_view_of_metrics_that_are_in_no_respect(cell):
    assert views([cell(metric="iteration-time", time=value())]) == []


def test_values_under_different_protocols_are_marked(cell):
    outcomes = [Outcome(status="ok", protocol=f"fid:images={n}", values={"fid": value()}) for n in (500, 1000)]
    fids = [cell(model, "fid", outcome=outcome) for model, outcome in zip("ab", outcomes, strict=True)]
    (view,) = views([*fids, cell("a", accuracy=value()), cell("b", accuracy=value())])
    assert [[text.marks for text in row] for row in view.table.rows] == [[(), (), ("†",)]] * 2
    assert [note.mark for note in view.table.footnotes] == ["", "†"]
