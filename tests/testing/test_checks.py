"""The framework of checks: what becomes of one, excuses, and how pytest is given them."""

import sys

import pytest

from jembench.errors import SpecError
from jembench.testing import Check, CheckFailed, DoesNotApply, check_model, expected_failures, parametrize, perform
from jembench.testing import checks as framework
from jembench.testing.checks import Promise, Subject, checks_of, promise


def passes(component=None):
    pass


def fails(component=None):
    raise CheckFailed("It is wrong. Mend it.")


def breaks(component=None):
    raise KeyError("y")


def skips(component=None):
    raise DoesNotApply("It promises no such thing.")


def result(run, excuse=""):
    status, message = perform(Check("name", "It holds.", "spec", run, excuse))[1:]
    return status, message


def test_every_end_of_a_check():
    assert result(passes) == ("passed", "")
    assert result(fails) == ("failed", "It is wrong. Mend it.")
    assert result(breaks) == ("failed", "KeyError: 'y'")
    assert result(skips) == ("skipped", "It promises no such thing.")


def test_what_is_excused_must_fail():
    assert result(fails, "Because.") == ("expected failure", "Because.")
    assert result(breaks, "Because.") == ("expected failure", "Because.")
    assert result(skips, "Because.") == ("skipped", "It promises no such thing.")
    assert result(passes, "Because.") == (
        "unexpected success",
        "It is declared to fail (Because.), but passes. Take that back.",
    )


@pytest.mark.parametrize(
    ("run", "excuse", "is_fine"),
    [(passes, "", True), (skips, "", True), (fails, "", False), (fails, "Because.", True), (passes, "Because.", False)],
)
def test_what_is_to_be_mended(run, excuse, is_fine):
    assert perform(Check("name", "It holds.", "spec", run, excuse)).is_fine == is_fine


def test_a_check_called_raises_what_it_finds():
    with pytest.raises(CheckFailed, match="Mend it"):
        Check("name", "It holds.", "spec", fails)()


PROMISES = [Promise("kept", "It is kept.", "", passes), Promise("broken", "It is broken.", "Write it anew.", fails)]


@pytest.fixture
def component(monkeypatch):
    """A module with one factory, to be declared otherwise by each test."""
    module = type(sys)("module_of_a_test")
    module.build = lambda data: None
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(framework.PROMISES, "models", PROMISES)
    return module


def checks(seen=None):
    class Prepared(Subject):
        kind = "models"

        def __init__(self, resolved, context):
            if seen is not None:
                seen.append(resolved)

    return checks_of("module_of_a_test:build", Prepared)


def test_a_check_for_every_promise_of_a_kind(component):
    found = checks()
    assert [str(check) for check in found] == ["kept", "broken"]
    assert [check.promise for check in found] == ["It is kept.", "It is broken."]
    assert {check.spec for check in found} == {"module_of_a_test:build"}
    assert [perform(check).status for check in found] == ["passed", "failed"]
    assert perform(found[1]).message == "It is wrong. Mend it. Write it anew."


def test_the_docstring_of_a_check_has_the_promise_and_the_remedy(monkeypatch):
    monkeypatch.setattr(framework, "PROMISES", {"models": [], "samplers": []})

    @promise("models", "samplers")
    def each_image_alone(subject):
        """Images do not
        mix.

        Take running
        statistics.
        """

    expected = Promise("each-image-alone", "Images do not mix.", "Take running statistics.", each_image_alone)
    assert {"models": [expected], "samplers": [expected]} == framework.PROMISES


def test_every_check_prepares_its_own_component(component):
    seen = []
    for check in checks(seen):
        perform(check)
    assert [str(resolved) for resolved in seen] == ["module_of_a_test:build"] * 2


def test_a_declared_failure_has_its_reason(component):
    expected_failures({"broken": "It estimates."})(component.build)
    assert [check.excuse for check in checks()] == ["", "It estimates."]
    assert [perform(check).status for check in checks()] == ["passed", "expected failure"]


def test_a_declared_failure_of_no_check_is_refused(component):
    expected_failures({"brokn": "It estimates."})(component.build)
    with pytest.raises(SpecError, match=r"no check of models named 'brokn'. Nearest: broken"):
        checks()


def test_a_declared_failure_without_a_reason_is_refused(component):
    expected_failures({"broken": " "})(component.build)
    with pytest.raises(SpecError, match=r"declared to fail broken without a reason\. Say why"):
        checks()


def test_a_component_that_does_not_exist_is_refused():
    with pytest.raises(SpecError, match="There is no model named 'jemm'"):
        check_model("jemm")


def test_pytest_gets_a_test_for_each_check_by_its_name():
    (cases,) = parametrize([Check("kept", "", "spec", passes), Check("off", "", "spec", fails, "Because.")]).mark.args[
        1:
    ]
    assert [case.id for case in cases] == ["kept", "off"]
    assert [[(mark.name, mark.kwargs) for mark in case.marks] for case in cases] == [
        [],
        [("xfail", {"reason": "Because.", "strict": True})],
    ]


@parametrize([Check("passes", "", "spec", passes), Check("fails", "", "spec", fails, "It is meant to.")])
def test_checks_run_as_tests(check):
    check()
