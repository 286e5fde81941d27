"""Grids: what they cross, for which datasets, and how they are written."""

import pytest

from jembench.catalog.spec import Spec
from jembench.catalog.validation import read
from jembench.errors import SpecError
from jembench.experiment.sweep import (
    Grid,
    Place,
    compares_with_itself,
    covers,
)

SCORES = {"score": ("log-px", "max-py")}
SETS = {"set": ("interp", "celeba:root=/data")}


def grid(**changes):
    return Grid(
        **(
            {"title": "", "metric": "outlier_metrics:ood", "rows": SCORES, "columns": SETS}
            | changes
        )
    )


def test_every_combination_row_by_row():
    name = "outlier_metrics:ood"
    assert grid().places == [
        # the default is left out, as everywhere
        Place(f"{name}:set=interp", ("log-px",), ("interp",)),
        Place(f"{name}:set=celeba:root=/data", ("log-px",), ("celeba:root=/data",)),
        Place(f"{name}:score=max-py,set=interp", ("max-py",), ("interp",)),
        Place(f"{name}:score=max-py,set=celeba:root=/data", ("max-py",), ("celeba:root=/data",)),
    ]


def test_without_row_options_there_is_one_row():
    assert [place.row for place in grid(rows={}).places] == [(), ()]


def test_options_that_are_fixed_are_in_every_place_and_what_the_metric_says_itself():
    places = grid(metric="outlier_metrics:ood:score=max-py", rows={}, fixed={"images": "7"}).places
    assert {place.metric.rpartition(",set=")[0] for place in places} == {
        "outlier_metrics:ood:images=7,score=max-py"
    }


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"metric": "odd"}, "There is no metric named 'odd'"),
        (
            {"fixed": {"image": "7"}},
            "There is no option of outlier_metrics:ood named 'image'. Nearest: images",
        ),
        ({"rows": {"score": ("px",)}}, "score of outlier_metrics:ood is 'px'; it must be one of"),
    ],
)
def test_a_grid_of_what_does_not_exist(changes, expected):
    with pytest.raises(SpecError) as caught:
        _ = grid(**changes).places
    assert str(caught.value).startswith(expected)


def test_an_option_that_is_set_on_the_command_line():
    assert grid().pinned({}) == grid()
    assert grid().pinned({"images": "7"}) == grid(fixed={"images": "7"})
    one = grid().pinned({"score": "grad-norm"})  # one that the grid crosses is not crossed any more
    assert one == grid(rows={"score": ("grad-norm",)})
    assert len(one.places) == 2


@pytest.mark.parametrize(
    ("datasets", "expected"),
    [
        ([], [True, True, True, True]),
        (["digits", "svhn:root=/b"], [True, True, True, False]),
        (["!digits"], [False, False, True, True]),
        (["!digits", "!svhn"], [False, False, False, True]),
    ],
)
def test_for_which_datasets(datasets, expected):
    asked = ["digits", "jembench/digits", "svhn:root=/a", "cifar10:root=/digits"]
    assert [covers(datasets, dataset) for dataset in asked] == expected


def test_outliers_that_are_the_dataset_itself():
    assert compares_with_itself(Spec("ood:score=max-py,set=cifar10"), Spec("cifar10:root=/data"))
    assert compares_with_itself(Spec("ood:set=jembench/cifar10:root=/b"), Spec("cifar10"))
    assert compares_with_itself(Spec("ood:set=imagefolder:root=/a"), Spec("imagefolder:root=/a"))
    assert not compares_with_itself(
        Spec("ood:set=imagefolder:root=/b"), Spec("imagefolder:root=/a")
    )
    assert not compares_with_itself(Spec("ood:set=cifar100"), Spec("cifar10"))
    assert not compares_with_itself(Spec("accuracy"), Spec("cifar10"))


WRITTEN = {
    "title": "T",
    "metric": "ece",
    "columns": {},
    "rows": {"top": [0.1, 500], "flag": [True]},
}


def test_the_values_of_a_file_are_texts():
    assert read(Grid, WRITTEN, "it") == Grid(
        title="T", metric="ece", columns={}, rows={"top": ("0.1", "500"), "flag": ("true",)}
    )
