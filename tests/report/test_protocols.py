"""Two protocols side by side: what must agree, and what may be left open."""

import pytest

from jembench.catalog.spec import Spec
from jembench.report.protocols import Match, compare

OURS = "ood:content=ab,data=cifar10,data_noise=0,images=10000,outliers=10000,score=log-px,"
OURS += "set=celeba:root=/data,split=test"
THEIRS = "ood:data=cifar10,data_noise=0,images=10000,score=log-px,set=celeba,split=test"


def differs(published, ours, metric="m"):
    return list(compare(published, ours, Spec(metric)).differs)


def test_what_no_paper_states_may_be_left_open():
    assert compare(THEIRS, OURS, Spec("ood:set=celeba:root=/data")) == Match(set(), set())
    assert compare(OURS, OURS, Spec("ood:set=celeba:root=/data")) == Match(set(), set())


@pytest.mark.parametrize(
    "part", ["data=cifar10", "data_noise=0", "images=10000", "score=log-px", "split=test"]
)
def test_a_part_that_is_not_stated_is_named(part):
    match = compare(THEIRS.replace(f"{part},", "").replace(f",{part}", ""), OURS, Spec("ood"))
    assert match == Match(set(), {part.partition("=")[0]})


@pytest.mark.parametrize(
    "part",
    [
        "data=svhn",
        "data_noise=0.03",
        "images=100",
        "score=max-py",
        "set=interp",
        "split=train",
        "outliers=5",
    ],
)
def test_a_part_that_is_stated_must_agree(part):
    name = part.partition("=")[0]
    stated = {
        **dict(one.split("=", 1) for one in THEIRS.removeprefix("ood:").split(",")),
        name: part.partition("=")[2],
    }
    theirs = "ood:" + ",".join(f"{key}={value}" for key, value in sorted(stated.items()))
    assert compare(theirs, OURS, Spec("ood")) == Match({name}, set())


def test_a_stated_part_that_ours_has_not_differs():
    assert differs("is:selection=model,top=0.1", "is:selection=model") == ["top"]


def test_an_option_that_our_metric_sets_is_no_default_and_must_be_stated():
    ours = "is:data=cifar10,selection=model,splits=10,top=1000/10000"
    assert compare("is:data=cifar10", ours, Spec("is:selection=model,top=0.1")) == Match(
        {"selection", "top"}, {"splits"}
    )
    assert (
        compare(
            "is:data=cifar10,selection=model,top=0.1", ours, Spec("is:selection=model,top=0.1")
        ).differs
        == set()
    )


def test_a_part_that_is_stated_vaguely_agrees_and_is_named():
    ours = "fid:features=inception-2015-12-05@67,images=10"
    assert compare("fid:features=inception-*,images=10", ours, Spec("fid")) == Match(
        set(), {"features"}
    )
    assert differs("fid:features=inception-*", "fid:features=digits-cnn@ab") == ["features"]


@pytest.mark.parametrize(
    ("published", "ours", "same"),
    [
        ("10000", "10000", True),
        ("0.1", "0.10", True),
        ("0.1", "1000/10000", True),
        ("0.1", "1000/50000", False),
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
    assert (differs(f"m:x={published}", f"m:x={ours}") == []) is same


def test_another_metric_and_a_protocol_that_is_no_id_cannot_be_compared():
    assert compare("ece:bins=20", "adaptive-ece:bins=20", Spec("adaptive-ece")) is None
    assert compare("ece:bins=20", "as I like it, for once", Spec("ece")) is None
