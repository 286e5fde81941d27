import importlib
import inspect
import sys

import pytest

import jembench
from jembench import errors


def test_a_platform_without_fcntl_is_told_so_by_the_import(monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with pytest.raises(
        ImportError, match=r"^jembench runs on Linux and macOS: .*fcntl is missing.* use WSL\.$"
    ):
        importlib.reload(jembench)


def test_every_error_derives_from_the_base_and_has_an_exit_code():
    ours = [
        member
        for _, member in inspect.getmembers(errors, inspect.isclass)
        if member.__module__ == errors.__name__
    ]
    assert len(ours) > 1
    for error in ours:
        assert issubclass(error, errors.JembenchError | Warning)
        assert issubclass(error, Warning) or error.exit_code in (1, 2, 3)


def test_unknown_names_the_nearest_and_all():
    error = errors.unknown(
        "model", "gem", ["jem", "igebm", "glow", "baseline"], "jembench list models"
    )
    assert isinstance(error, errors.SpecError)
    assert str(error) == (
        "There is no model named 'gem'. Nearest: igebm, jem. Known: baseline, glow, igebm, jem. "
        "`jembench list models` says what each one is."
    )


def test_unknown_lists_at_most_three_nearest():
    error = errors.unknown(
        "metric", "fid", ["fid1", "fid2", "fid3", "fid4"], "jembench list metrics"
    )
    assert str(error).split("Nearest: ")[1].split(".")[0].count(",") == 2


def test_unknown_ignores_case():
    assert "Nearest: jem." in str(errors.unknown("model", "JEM", ["jem"], "jembench list models"))


@pytest.mark.parametrize("known", [[], ["zzzzzz"]])
def test_unknown_without_a_near_name_offers_none(known):
    assert "Nearest" not in str(errors.unknown("model", "jem", known, "jembench list models"))


def test_unknown_says_when_there_is_nothing():
    assert "There is none at all." in str(
        errors.unknown("option of ece", "m", [], "jembench list metrics")
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("jem: 99 % \u2191\n\tnext", "jem: 99 % \u2191\n\tnext"),
        ("\x1b]8;;http://x\x07a\x1b[31m", r"\x1b]8;;http://x\x07a\x1b[31m"),
        ("\r\x08\x7f\x9b1m", r"\r\x08\x7f\x9b1m"),
        ("a\u202ecba", r"a\u202ecba"),
    ],
)
def test_what_is_printed_does_nothing_to_the_terminal(text, shown):
    assert errors.printable(text) == shown
