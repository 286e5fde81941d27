"""The texts of jembench use standard terms in normal word order: some phrases must not occur in them."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PATTERNS = (
    "jembench/**/*",
    "plugins/**/*",
    "benchmarks/jembench_suites/**/*",
    "docs/**/*",
    "README.md",
    "CONTRIBUTING.md",
)
TEXTS = {".py", ".md", ".toml", ".template"}

INSTEAD = {
    r"at hand": "available",
    r"whom": "name the object: 'models to attack'",
    r"whoever": "name the subject: 'the reader', 'the caller'",
    r"nobody": "name what is unused or unknown: 'unused', 'unknown'",
    r"so many": "give the number a name: 'n images', 'number of steps'",
    r"so long \(": "give the time a name: 'after H hours'",
    r"told": "reported, printed, distinct",
    r"mend(s|ed|ing)?": "fix, repair",
    r"root of all": "random seed",
    r"uses? (no )?chance": "stochastic, deterministic",
    r"chance of": "probability of",
    r"gone back on": "rolled back",
    r"how (they|it) stands? it": "how robust they are",
    r"can(not)? come to so": "name the limit",
    r"becomes of|became of": "the result for",
    r"no business": "say what is not allowed",
    r"for want of": "without",
    r"look after": "name the actions: 'check', 'list'",
}
"""Phrases (as regular expressions of whole words) and what to write instead."""


def odd_phrases(text):
    """The phrases of INSTEAD in a text, whose words may be on two lines."""
    joined = re.sub(r"\s*\n[\s#]*", " ", text)
    return [phrase for phrase in INSTEAD if re.search(rf"\b(?:{phrase})(?!\w)", joined, re.IGNORECASE)]


def texts():
    found = {path for pattern in PATTERNS for path in ROOT.glob(pattern) if path.suffix in TEXTS}
    return sorted({*found, *ROOT.glob("benchmarks/*.md")})


def test_no_text_has_an_odd_phrase():
    found = {str(path.relative_to(ROOT)): odd_phrases(path.read_text()) for path in texts()}
    wrong = [f"{path}: {phrase!r}: {INSTEAD[phrase]}" for path, phrases in found.items() for phrase in phrases]
    assert not wrong, "\n".join(wrong)


def test_all_kinds_of_texts_are_read():
    read = {path.relative_to(ROOT).as_posix() for path in texts()}
    assert {"README.md", "CONTRIBUTING.md", "benchmarks/README.md", "plugins/README.md", "jembench/cli/main.py"} <= read
    assert {path.suffix for path in texts()} == TEXTS


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Whom to attack.", ["whom"]),
        ("its weights are not at\n    hand", ["at hand"]),
        ("# of so\n# many steps", ["so many"]),
        ("a handful of recommended folders is untold", []),
    ],
)
def test_a_planted_phrase_is_found(text, found):
    assert odd_phrases(text) == found
