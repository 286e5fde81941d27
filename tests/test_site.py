"""The built site is whole in itself: no page asks another host for a style, a script, a font or a
picture.
"""

import os
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

pytestmark = pytest.mark.skipif(
    "JEMBENCH_TESTS_SITE" not in os.environ, reason="tox -e docs builds the site"
)
SITE = Path(os.environ.get("JEMBENCH_TESTS_SITE", "."))
ELSEWHERE = re.compile(r"\s*(https?:)?//")


class Resources(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.found = []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.found += [
            value for name, value in attributes if name == "src" or (name == "href" and tag != "a")
        ]


def test_a_remote_resource_is_seen():
    assert Resources(
        '<a href="https://a.b"><script src="//c.d/e.js"></script><link href="f.css">'
    ).found == [
        "//c.d/e.js",
        "f.css",
    ]


def test_no_page_loads_anything_from_elsewhere():
    pages = sorted(SITE.rglob("*.html"))
    assert len(pages) > 20
    resources = {
        (page.name, address) for page in pages for address in Resources(page.read_text()).found
    }
    assert [found for found in resources if ELSEWHERE.match(found[1])] == []


def test_every_link_within_the_site_leads_to_a_file():
    lost = set()
    for page in (SITE / "docs").rglob("*.html"):
        for address in re.findall(r'href="([^"#?:]+)[^":]*"', page.read_text()):
            lost |= set() if (page.parent / unquote(address)).exists() else {(page.name, address)}
    assert lost == set()


def test_no_style_sheet_loads_anything_from_elsewhere():
    for sheet in SITE.rglob("*.css"):
        addresses = re.findall(r"url\(['\"]?([^)'\"]+)|@import\s+['\"]([^'\"]+)", sheet.read_text())
        assert not [each for pair in addresses for each in pair if ELSEWHERE.match(each)], sheet


def test_formulas_are_mathml():
    page = (SITE / "docs" / "science.html").read_text()
    assert "<math" in page
    assert "MathJax" not in page
