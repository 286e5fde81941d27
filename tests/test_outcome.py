"""Cells as JSON: what is written is read back, and damage is named."""

import json
import math
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jembench.errors import StoreError
from jembench.interfaces import Value
from jembench.outcome import SCHEMA, Cell, FitKey, Outcome, fit_key_from_json, from_json, to_json

FIT = FitKey(model="jem:net=cnn", dataset="digits", recipe="digits+iterations=50", seed=0, id="ab12")

text = st.text(max_size=12)
numbers = st.floats()
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
json_objects = st.dictionaries(text, json_values, max_size=3)
values = st.builds(
    Value,
    numbers,
    st.none() | numbers,
    st.none() | numbers,
    st.integers(min_value=0),
    text,
    st.sampled_from(["higher", "lower", ""]),
)
outcomes = st.builds(
    Outcome,
    status=st.sampled_from(["ok", "na", "failed"]),
    protocol=text,
    values=st.dictionaries(text, values, max_size=3),
    reason=text,
    traceback=text,
    details=json_objects,
    seconds=numbers,
)
fits = st.builds(FitKey, model=text, dataset=text, recipe=text, seed=st.integers(), id=text)
cells = st.builds(Cell, id=text, fit=fits, metric=text, outcome=outcomes, provenance=json_objects)


def example() -> Cell:
    value = Value(97.5, 95.4, 98.6, 397, "%", "higher")
    outcome = Outcome(status="ok", protocol="accuracy:test", values={"accuracy": value}, seconds=0.1)
    return Cell(id="cd34", fit=FIT, metric="accuracy", outcome=outcome, provenance={"torch": "2.6"})


@given(cells)
def test_a_cell_survives_json(cell: Cell) -> None:
    written = json.dumps(to_json(cell), allow_nan=False)
    assert repr(from_json(json.loads(written))) == repr(cell)  # repr: nan equals itself


def test_numbers_that_are_not_finite_are_strings_in_json() -> None:
    value = Value(math.nan, -math.inf, math.inf, 1)
    cell = Cell(id="", fit=FIT, metric="", outcome=Outcome(status="ok", values={"x": value}, details={"gap": math.inf}))
    outcome = to_json(cell)["outcome"]
    assert [outcome["values"]["x"][key] for key in ("value", "low", "high")] == ["nan", "-inf", "inf"]
    assert outcome["details"] == {"gap": "inf"}


def test_unknown_keys_are_passed_over() -> None:
    data = to_json(example())
    for place in (data, data["fit"], data["outcome"], data["outcome"]["values"]["accuracy"]):
        place["added later"] = [1]
    assert from_json(data) == example()


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        ("id", 3),
        ("schema", "1"),
        ("schema", True),
        ("fit", []),
        ("fit.seed", 0.5),
        ("metric", None),
        ("outcome.status", "fine"),
        ("outcome.status", []),
        ("outcome.values", None),
        ("outcome.values.accuracy", 97.5),
        ("outcome.values.accuracy.value", "97.5"),
        ("outcome.values.accuracy.value", None),
        ("outcome.values.accuracy.low", True),
        ("outcome.values.accuracy.n", 3.5),
        ("outcome.values.accuracy.better", "up"),
        ("outcome.details", []),
        ("provenance", "none"),
    ],
)
def test_a_wrong_type_is_refused_by_name(path: str, wrong: object) -> None:
    data = to_json(example())
    *parents, key = path.split(".")
    place = data
    for parent in parents:
        place = place[parent]
    place[key] = wrong
    with pytest.raises(StoreError, match=rf"In cells/x\.json, {path} is .* must be .*Remove the file"):
        from_json(data, "cells/x.json")
    del place[key]
    if path != "outcome.values.accuracy":  # a label is free to be absent
        with pytest.raises(StoreError, match=f"lacks the field {path}"):
            from_json(data, "cells/x.json")


@pytest.mark.parametrize("data", [None, [], "text", 3])
def test_what_is_no_object_is_refused(data: object) -> None:
    with pytest.raises(StoreError, match="must be an object"):
        from_json(data)


def test_a_newer_schema_is_refused_before_anything_else_is_read() -> None:
    with pytest.raises(StoreError, match=f"newer jembench .schema {SCHEMA + 1}"):
        from_json({"schema": SCHEMA + 1}, "cells/x.json")


def test_a_fit_key_is_read_alone() -> None:
    assert fit_key_from_json(asdict(FIT)) == FIT
    with pytest.raises(StoreError, match=r"In fit\.json, seed is 'zero'"):
        fit_key_from_json({**asdict(FIT), "seed": "zero"}, "fit.json")
