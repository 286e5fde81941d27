"""Cells as JSON: what is written is read back, and damage is named."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jembench.catalog.spec import Spec
from jembench.errors import DamagedError, printable
from jembench.interfaces import Value
from jembench.store.outcome import Cell, FitKey, Outcome, encode, from_json
from jembench.store.records import Record

FIT = FitKey(
    model=Spec("jem:net=cnn"),
    dataset=Spec("digits"),
    recipe="digits+iterations=50",
    seed=0,
    id="ab12",
)

text = st.text(max_size=12)
line = text.filter(lambda text: "\n" not in text and printable(text) == text)
numbers = st.floats()
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
TYPED = {
    "limit",
    "interventions",
    "stability",
    "time",
    "suspicious",
    "partial",
    "chance",
    "undefined",
}
json_objects = st.dictionaries(text.filter(lambda key: key not in TYPED), json_values, max_size=3)
integers = st.integers(-(2**63), 2**63 - 1)
specs = st.builds(
    Spec.of,
    st.from_regex(r"[a-z]{1,5}", fullmatch=True),
    st.dictionaries(st.from_regex(r"[a-z]{1,3}", fullmatch=True), line, max_size=2),
)
name = st.from_regex(r"[a-z0-9.-]{1,9}", fullmatch=True)
values = st.builds(
    lambda value, ends, *rest: Value(value, *ends, *rest),
    numbers,
    st.tuples(st.none() | numbers, st.none() | numbers).filter(
        lambda ends: None in ends or not ends[0] > ends[1]
    ),
    st.integers(0, 2**63 - 1),
    line,
    st.sampled_from(["higher", "lower", ""]),
)
outcomes = st.builds(
    Outcome,
    status=st.sampled_from(["ok", "na", "failed"]),
    protocol=line,
    values=st.dictionaries(line, values, min_size=1, max_size=3),
    reason=text,
    traceback=text,
    details=json_objects,
    seconds=numbers,
)
fits = st.builds(FitKey, model=specs, dataset=specs, recipe=line, seed=integers, id=name)
cells = st.builds(
    Cell,
    id=name,
    fit=fits,
    metric=specs,
    outcome=outcomes,
    provenance=json_objects,
    arrays=st.just("") | st.from_regex("[0-9a-f]{64}", fullmatch=True),
)


def read(data: object, where: str = "cells/x.json") -> Cell:
    return from_json(Record(data, where))


def example() -> Cell:
    value = Value(97.5, 95.4, 98.6, 397, "%", "higher")
    outcome = Outcome(
        status="ok", protocol="accuracy:test", values={"accuracy": value}, seconds=0.1
    )
    return Cell(
        id="cd34", fit=FIT, metric=Spec("accuracy"), outcome=outcome, provenance={"torch": "2.6"}
    )


@given(cells)
def test_a_cell_survives_json(cell: Cell) -> None:
    written = json.dumps(encode(cell), allow_nan=False)
    assert repr(read(json.loads(written))) == repr(cell)  # repr: nan equals itself


def test_numbers_that_are_not_finite_are_strings_in_json() -> None:
    value = Value(math.nan, -math.inf, math.inf, 1)
    cell = Cell(
        id="",
        fit=FIT,
        metric=Spec("fid"),
        outcome=Outcome(status="ok", values={"x": value}, details={"gap": math.inf}),
    )
    outcome = encode(cell)["outcome"]
    assert [outcome["values"]["x"][key] for key in ("value", "low", "high")] == [
        "nan",
        "-inf",
        "inf",
    ]
    assert outcome["details"] == {"gap": "inf"}


def test_unknown_keys_are_passed_over() -> None:
    data = encode(example())
    for place in (data, data["fit"], data["outcome"], data["outcome"]["values"]["accuracy"]):
        place["added later"] = [1]
    assert read(data) == example()


OPTIONAL = {"outcome.values.accuracy.better", "provenance", "outcome.details", "arrays"}
WRONG = {
    "id": [3, "", "../x"],
    "fit.id": ["x" * 200],
    "fit": [[]],
    "fit.model": ["", "no spec!", "\x1b[2J"],
    "fit.seed": [0.5, 2**70],
    "metric": [None, "a,b"],
    "arrays": [[]],
    "outcome": [3],
    "outcome.status": ["fine", []],
    "outcome.values.accuracy.value": ["97.5", None],
    "outcome.values.accuracy.low": [True],
    "outcome.values.accuracy.n": [3.5, 2**70],
    "outcome.values.accuracy.better": ["up"],
    "outcome.details": [[]],
    "provenance": ["none"],
}
WRONG_INSIDE = {
    "provenance.limit": [[], 0, 2.5, "10"],
    "provenance.interventions": ["mended", [1]],
    "provenance.time": [3, None],
    "outcome.details.suspicious": ["text", [1]],
    "outcome.details.partial": [["a"], True],
    "outcome.values": [None, {}],
    "outcome.values.accuracy": [97.5],
}


def place_of(data: Any, path: str) -> tuple[Any, str]:
    *parents, key = path.split(".")
    for parent in parents:
        data = data[parent]
    return data, key


@pytest.mark.parametrize(
    ("path", "wrong"), [(path, one) for path, all in (WRONG | WRONG_INSIDE).items() for one in all]
)
def test_a_value_that_no_cell_can_have_is_refused_by_name(path: str, wrong: object) -> None:
    place, key = place_of(data := encode(example()), path)
    place[key] = wrong
    with pytest.raises(
        DamagedError, match=r"In cells/x\.json, .* is .* must be .*Remove the file"
    ) as caught:
        read(data)
    assert path.removesuffix(".values") in str(caught.value)


@pytest.mark.parametrize("path", sorted(WRONG.keys() - OPTIONAL))
def test_a_field_that_is_missing_is_named(path: str) -> None:
    place, key = place_of(data := encode(example()), path)
    del place[key]
    with pytest.raises(DamagedError, match=f"lacks {path}"):
        read(data)


@pytest.mark.parametrize(
    "wrong", [{"n": -1}, {"low": 99.5}, {"low": "inf"}, {"unit": "two\nlines"}]
)
def test_a_value_that_no_metric_gives_is_refused(wrong: dict[str, object]) -> None:
    data = encode(example())
    data["outcome"]["values"]["accuracy"] |= wrong
    with pytest.raises(
        DamagedError,
        match=r"In cells/x\.json, outcome\.values\.accuracy is .* must be a value with n",
    ):
        read(data)


@pytest.mark.parametrize("data", [None, [], "text", 3])
def test_what_is_no_object_is_refused(data: object) -> None:
    with pytest.raises(DamagedError, match="must be a table"):
        read(data)
