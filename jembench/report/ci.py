"""Formats for continuous integration: JUnit XML, and Markdown for GitHub's summary of a job.

Records with an ``outcome`` pass or fail: those of ``check``, of ``compare --fail-if-worse`` and of
the claims of a file.
"""

import re
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree

from jembench.errors import SpecError
from jembench.report.formats import Document, in_markdown, markdown
from jembench.report.gate import Outcome, final
from jembench.report.table import decimals_for, fixed

_ELEMENTS: Mapping[Outcome, str] = {"failed": "failure", "error": "error", "skipped": "skipped"}
"""The elements of JUnit for outcomes that are not passed."""

_ICONS: Mapping[Outcome, str] = {"failed": "❌", "error": "⚠️"}

_NOT_IN_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(document: Document) -> str:
    """Return JUnit XML, a test case for each value and claim.

    Raises:
        SpecError: if the document has no outcomes.
    """
    suite = ElementTree.Element("testsuite", name="jembench")
    counts = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
    if "summary" not in document.about:
        raise SpecError(
            "The format junit is for what passes or fails: `jembench check`, `jembench compare "
            "--fail-if-worse` and `jembench report FILE --claims`. Choose another one for results."
        )
    for record in document.records():
        place = [record[key] for key in ("dataset", "model_a", "recipe_a") if record.get(key)]
        name = record.get("claim") or record["label"] or record["metric"]
        case = ElementTree.SubElement(suite, "testcase", classname=_xml(" ".join(place)))
        case.set("name", _xml(name))
        counts["tests"] += 1
        outcome = final(record["outcome"], strict=document.about["strict"])
        element = _ELEMENTS.get(outcome)
        if element:
            message = _xml(_sentence(record))
            ElementTree.SubElement(case, element, message=message).text = message
            counts[element if element == "skipped" else f"{element}s"] += 1
    for key, count in counts.items():
        suite.set(key, str(count))
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def github(document: Document) -> str:
    """Return Markdown: the counts of outcomes, what did not pass, and the tables."""
    tables = markdown(document)
    if "summary" not in document.about:
        return tables
    lines = [f"## {in_markdown(document.about['summary'])}\n"]
    for record in document.records():
        outcome = final(record["outcome"], strict=document.about["strict"])
        if outcome in _ICONS:
            name = record.get("text") or record["label"] or record["metric"]
            place = ", ".join(filter(None, (record["model_a"], record["dataset"])))
            text = in_markdown(f"{name} ({place}): {_sentence(record)}")
            lines.append(f"- {_ICONS[outcome]} {text}")
    return "\n".join([*lines, "", tables])


def _sentence(record: Mapping[str, Any]) -> str:
    """Return the verdict, with both values and the reason."""
    parts = [record["verdict"]]
    if record["difference"] is not None:
        decimals = decimals_for(record["difference"] or record["a"], None)
        now, before, by = (fixed(record[key], decimals) for key in ("a", "b", "difference"))
        parts.append(f"{now} against {before} {record['unit']}".rstrip() + f", difference {by}")
    if record["p"] is not None:
        parts.append(f"p = {record['p']:.2g}")
    if record["reason"]:
        parts.append(record["reason"])
    return "; ".join(parts)


def _xml(text: str) -> str:
    """Return a text without the characters that XML cannot hold."""
    return _NOT_IN_XML.sub("�", text)
