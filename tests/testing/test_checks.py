"""The framework of checks, and how pytest and the command get them."""

import sys

import pytest

from jembench.errors import SpecError, Unavailable
from jembench.testing import check_model
from jembench.testing import checks as framework
from jembench.testing.checks import CheckFailed, DoesNotApply, Subject, checks_of, perform, promise


class Prepared(Subject):
    kind = "models"


@pytest.fixture
def checks(monkeypatch):
    """The checks of a component, by their names."""
    module = type(sys)("module_of_a_test")
    module.build = lambda data: None
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(framework, "PROMISES", {"models": []})

    @promise("models")
    def is_kept(subject):
        """It is
        kept.

        Do
        nothing.
        """

    @promise("models")
    def fails(subject):
        """It is broken.

        Mend it.
        """
        raise CheckFailed("It is wrong.")

    @promise("models")
    def breaks(subject):
        """It is broken."""
        raise KeyError("y")

    @promise("models")
    def refuses(subject):
        """It refuses."""
        raise SpecError("No such option.")

    @promise("models")
    def skips(subject):
        """It does not apply."""
        raise DoesNotApply("It promises no such thing.")

    @promise("models")
    def lacks(subject):
        """It lacks a file."""
        raise Unavailable("The file is missing. Fetch it.")

    return {check.name: check for check in checks_of("module_of_a_test:build", Prepared)}


@pytest.mark.parametrize(
    ("name", "status", "message"),
    [
        ("is-kept", "passed", ""),
        ("fails", "failed", "It is wrong. Mend it."),
        ("breaks", "failed", "KeyError: 'y' ("),
        ("refuses", "failed", "No such option."),
        ("skips", "skipped", "It promises no such thing."),
        ("lacks", "skipped", "The file is missing. Fetch it."),
    ],
)
def test_every_outcome_of_a_check(checks, name, status, message):
    result = perform(checks[name])
    assert result.status == status
    assert result.message.startswith(message)


def test_the_docstring_of_a_check_is_its_promise(checks):
    assert checks["is-kept"].promise == "It is kept."
    assert {check.spec for check in checks.values()} == {"module_of_a_test:build"}


def test_a_component_that_does_not_exist_is_refused():
    with pytest.raises(SpecError, match="There is no model named 'jemm'"):
        check_model("jemm")
