"""Which models of a store a name means."""

import pytest

from jembench.errors import SpecError
from jembench.report.names import matching
from jembench.report.pair import find_pair
from jembench.report.record import subjects
from jembench.store.outcome import Cell, FitKey, Outcome


def store(*fits):
    """A cell for each ``(model, dataset, recipe)``, of seeds 0 and 1."""
    cells = []
    for model, dataset, recipe in fits:
        for seed in (0, 1):
            family = f"{model}-{dataset}-{recipe}"
            fit = FitKey(model=model, dataset=dataset, recipe=recipe, seed=seed, id=f"{family}{seed}", family=family)
            cells.append(Cell(id=fit.id, fit=fit, metric="accuracy", outcome=Outcome(status="ok")))
    return subjects(cells)


def names(pair):
    return [subject.names for subject in pair]


KNOWN = store(
    ("jem", "digits", "digits"),
    ("baseline", "digits", "digits"),
    ("baseline:norm=batch", "digits", "digits"),
    ("jem:net=small-12", "imagefolder:root=/a", "fast"),
    ("baseline", "imagefolder:root=/a", "fast"),
)


def test_all_seeds_of_a_model_are_one_subject():
    (first, *_) = KNOWN
    assert (str(first), first.seeds, len(first.cells)) == ("jem on digits, recipe digits", (0, 1), 2)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("jem", "baseline", [("jem", "digits", "digits"), ("baseline", "digits", "digits")]),
        ("baseline", "jem", [("baseline", "digits", "digits"), ("jem", "digits", "digits")]),
        ("jem", "baseline:norm=batch", [("jem", "digits", "digits"), ("baseline:norm=batch", "digits", "digits")]),
        (
            "jembench-jem/jem:net=auto",  # a default, and the distribution
            "baseline: norm=batch",
            [("jem", "digits", "digits"), ("baseline:norm=batch", "digits", "digits")],
        ),
        (
            "jem:net=small-12",
            "baseline",
            [("jem:net=small-12", "imagefolder:root=/a", "fast"), ("baseline", "imagefolder:root=/a", "fast")],
        ),
    ],
)
def test_a_spec_however_it_is_written(a, b, expected):
    assert names(find_pair(KNOWN, a, b)) == expected


def test_a_name_alone_where_it_means_one():
    known = store(("jem:net=small-12", "digits", "digits"), ("baseline:norm=batch", "digits", "digits"))
    assert names(find_pair(known, "jem", "baseline"))[0][0] == "jem:net=small-12"


def test_a_name_alone_that_means_several():
    known = store(("jem:net=a", "digits", "d"), ("jem:net=b", "digits", "d"), ("baseline", "digits", "d"))
    with pytest.raises(
        SpecError, match=r"more than one model jem: jem:net=a, jem:net=b\. Write the one that you mean\."
    ):
        find_pair(known, "jem", "baseline")


def test_a_model_that_is_not_there():
    with pytest.raises(SpecError, match=r"There is no model in the store named 'jam'. Nearest: jem.*Known: baseline,"):
        find_pair(KNOWN, "jam", "baseline")


@pytest.mark.parametrize("dataset", ["imagefolder", "imagefolder:root=/a"])
def test_one_of_several_datasets(dataset):
    known = store(*((m, d, "r") for d in ("digits", "imagefolder:root=/a") for m in ("jem", "baseline")))
    with pytest.raises(SpecError, match=r"\(1\) jem on digits, recipe r, with baseline on digits, recipe r; \(2\) "):
        find_pair(known, "jem", "baseline")
    assert find_pair(known, "jem", "baseline", dataset=dataset).a.dataset == "imagefolder:root=/a"


def test_a_dataset_that_is_not_there():
    with pytest.raises(SpecError, match="There is no dataset in the store named 'cifar10'"):
        find_pair(KNOWN, "jem", "baseline", dataset="cifar10")


def test_the_same_recipe_goes_before_others():
    known = store(("jem", "digits", "a"), ("jem", "digits", "b"), ("baseline", "digits", "b"))
    assert [recipe for *_, recipe in names(find_pair(known, "jem", "baseline"))] == ["b", "b"]
    assert [r for *_, r in names(find_pair(known, "jem", "baseline", recipe="a", recipe_b="b"))] == ["a", "b"]


def test_another_recipe_where_there_is_no_other():
    known = store(("jem", "digits", "a"), ("baseline", "digits", "b"))
    assert [recipe for *_, recipe in names(find_pair(known, "jem", "baseline"))] == ["a", "b"]


def test_two_recipes_of_one_model_go_by_their_names():
    known = store(("jem", "digits", "a"), ("jem", "digits", "b"))
    pair = find_pair(known, "jem", "jem", recipe="a", recipe_b="b")
    assert pair.names == ("a", "b")
    with pytest.raises(SpecError, match="More than one comparison"):
        find_pair(known, "jem", "jem")


def test_several_recipes_of_both_are_refused():
    known = store(*((m, "digits", r) for r in ("digits", "digits-validation") for m in ("jem", "baseline")))
    with pytest.raises(SpecError, match="More than one comparison"):
        find_pair(known, "jem", "baseline")


def test_a_recipe_that_is_not_there():
    with pytest.raises(SpecError, match=r"no recipe of jem in the store named 'x'.*Known: digits\."):
        find_pair(KNOWN, "jem", "baseline", recipe="x", dataset="digits")


def test_the_same_model_twice():
    with pytest.raises(SpecError, match=r"Both models are jem on digits, recipe digits\. Name two, or two recipes"):
        find_pair(KNOWN, "jem", "jem")


def test_models_that_were_measured_on_different_datasets():
    known = store(("jem", "digits", "a"), ("baseline", "svhn", "b"))
    with pytest.raises(SpecError, match="not measured on the same dataset: jem on digits, recipe a; baseline on svhn"):
        find_pair(known, "jem", "baseline")


def test_matching():
    metrics = ["ood:set=interp", "ood:score=max-py,set=interp", "accuracy"]
    assert matching("metrics", "ood", metrics) == metrics[:2]
    assert matching("metrics", "ood:score=log-px,set=interp", metrics) == ["ood:set=interp"]
    assert matching("metrics", "ood:set=uniform", metrics) == []
    assert matching("metrics", "gone", ["gone:x=1"]) == ["gone:x=1"]
