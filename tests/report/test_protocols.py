"""Two protocols side by side: what must agree, what may be left open, and how a difference is put."""

import pytest

from jembench.report.protocols import Difference, Match, compare, in_words

OURS = "ood:content=ab,data=cifar10,data_noise=0,images=10000,outliers=10000,score=log-px,"
OURS += "set=celeba:root=/data,split=test"
THEIRS = "ood:data=cifar10,data_noise=0,images=10000,score=log-px,set=celeba,split=test"


def parts(published, ours):
    return [difference.part for difference in compare(published, ours).differences]


def test_what_papers_pass_over_may_be_left_open_and_is_named():
    assert compare(THEIRS, OURS) == Match((), ("content", "outliers"))
    assert compare(OURS, OURS) == Match((), ())


@pytest.mark.parametrize("part", ["data_noise=0", "images=10000", "score=log-px", "set=celeba", "split=test"])
def test_all_else_must_be_stated(part):
    without = THEIRS.replace(f",{part}", "")
    name, _, value = part.partition("=")
    (difference,) = compare(without, OURS).differences
    assert difference[:2] == (name, None)
    assert difference.ours.startswith(value)


def test_an_open_part_that_is_stated_must_agree_too():
    assert parts(f"{THEIRS},outliers=100", OURS) == ["outliers"]
    assert parts(f"{THEIRS},outliers=10000", OURS) == []


@pytest.mark.parametrize(
    ("published", "ours", "same"),
    [
        ("10000", "10000", True),
        ("0.1", "0.10", True),
        ("inception-2015-12-05", "inception-2015-12-05@6726825d", True),
        ("celeba", "celeba:root=/data", True),
        ("constant:value=0", "constant:value=0", True),
        ("constant:value=0", "constant:value=0.0", True),
        ("constant:value=0", "constant:value=-1", False),
        ("constant:value=0", "constant", False),
        ("chains:steps=5", "chains:steps=10", False),
        ("cifar10", "cifar100", False),
        ("10000", "1000", False),
        ("inception", "inception-2015-12-05", False),
    ],
)
def test_values_agree_but_for_a_location_or_a_checksum(published, ours, same):
    assert (parts(f"m:x={published}", f"m:x={ours}") == []) is same


def test_another_metric_and_a_protocol_that_is_no_id_cannot_be_compared():
    assert compare("ece:bins=20", "adaptive-ece:bins=20") is None
    assert compare("ece:bins=20", "as I like it, for once") is None


def test_the_number_of_images_goes_without_saying_where_the_data_are_others():
    assert parts("accuracy:data=cifar10,images=10000,split=test", "accuracy:data=digits,images=397,split=test") == [
        "data"
    ]
    assert parts("accuracy:data=digits,images=10000,split=test", "accuracy:data=digits,images=397,split=test") == [
        "images"
    ]


def test_details_of_what_ours_has_not_are_passed_over():
    assert parts("is:selection=model,top=1/10", "is:selection=none") == ["selection"]
    assert parts("is:selection=model,top=1/10", "is:selection=model") == ["top"]


def test_differences_in_words():
    found = [
        Difference("data", "CIFAR-10", "digits"),
        Difference("features", "inception", "digits-cnn@ab12"),
        Difference("top", "1/10", None),
        Difference("bins", None, "20"),
        Difference("data_noise", None, "0"),
    ]
    assert in_words(found) == [
        "dataset CIFAR-10, ours digits",
        "features inception, ours digits-cnn",
        "top 1/10, ours none",
        "not stated there: bins, noise on test images",
    ]


def test_what_differs_from_row_to_row_is_said_once():
    values = ["100", "500", "100", "1000", "5000"]
    assert in_words([Difference("top", value, "7") for value in values[:2]]) == ["top 100 or 500, ours 7"]
    assert in_words([Difference("top", value, "7") for value in values]) == ["top from 100 to 5000, ours 7"]
    some = [Difference("top", "100", "7"), Difference("top", None, "7")]
    assert in_words(some) == ["top 100 or not stated, ours 7"]
