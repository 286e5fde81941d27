"""Formats for continuous integration: JUnit XML, and Markdown for GitHub's summary of a job."""

from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree

from jembench.errors import SpecError, printable
from jembench.report.claims import Outcome
from jembench.report.formats import Document, in_markdown, markdown
from jembench.report.rows import joined

_ELEMENTS: Mapping[Outcome, str] = {"failed": "failure", "error": "error", "skipped": "skipped"}
"""The elements of JUnit for outcomes that are not passed."""

_ICONS = ("✅", "❌", "⚠️")
"""The icons of exit codes."""


def junit(document: Document) -> str:
    """Return JUnit XML, a test case for each value and claim.

    Raises:
        SpecError: if the document has no outcomes.
    """
    if "exit_code" not in document.about:
        raise SpecError(
            "The format junit is for what passes or fails: `jembench check`, `jembench compare "
            "--fail-if-worse` and `jembench report FILE --claims`. Choose another one for results."
        )
    root = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(root, "testsuite", name="jembench")
    for record in document.records():
        place = [record[key] for key in ("dataset", "model_a", "recipe_a") if record[key]]
        case = ElementTree.SubElement(suite, "testcase", classname=printable(" ".join(place)))
        case.set("name", printable(record["name"]))
        element = _ELEMENTS.get(record["outcome"])
        if element:
            message = printable(_sentence(record))
            ElementTree.SubElement(case, element, message=message).text = message

    outcomes = [record["outcome"] for record in document.records()]
    suite.set("tests", str(len(outcomes)))
    suite.set("failures", str(outcomes.count("failed")))
    suite.set("errors", str(outcomes.count("error")))
    suite.set("skipped", str(outcomes.count("skipped")))
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def github(document: Document) -> str:
    """Return Markdown: the summary of a gate as a heading, and the tables."""
    tables = markdown(document)
    if "exit_code" not in document.about:
        return tables
    icon = _ICONS[document.about["exit_code"]]
    return f"## {icon} {in_markdown(document.about['summary'])}\n\n{tables}"


def _sentence(record: Mapping[str, Any]) -> str:
    """Return the verdict, with both values and the reason."""
    values = ""
    if record["difference"] is not None:
        values = f"{record['a']:.4g} against {record['b']:.4g} {record['unit']}".strip()
    return joined((record["verdict"], values, record["reason"]))
