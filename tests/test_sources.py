"""What counts as a change of somebody's code, and whose code has a version instead."""

import random
import sys

import pytest

import jembench
from jembench import sources
from jembench.sources import code, code_of_options

PLAIN = '''"""A model."""
import math

# how wide

WIDTH = 4  # for now


def build(data):
    """Makes it.

    # no comment
    """
    return (
        WIDTH,
    )
'''


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Write files of modules that can be imported, by their paths, and forget afterwards what was imported of them."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)

    def write(texts):
        for name, text in texts.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    yield write
    for name in set(sys.modules) - before:
        if name.startswith("own_"):
            del sys.modules[name]


def test_comments_and_blank_lines_change_nothing(written):
    written({"own_code.py": PLAIN})
    before = code("own_code")
    written({"own_code.py": PLAIN.replace("# how wide\n", "").replace("  # for now", "").replace("\n\n\n", "\n\n")})
    assert code("own_code") == before != ""
    written({"own_code.py": PLAIN.replace("import math\n", "import math  # for pi\n\n\n# and e\n")})
    assert code("own_code") == before


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("WIDTH = 4", "WIDTH = 5"),
        ("    return", "  return"),
        ("    # no comment\n", ""),
        ("Makes it.\n\n", "Makes it.\n"),
        ("import math", ""),
    ],
)
def test_anything_else_is_another_code(written, old, new):
    written({"own_code.py": PLAIN})
    before = code("own_code")
    written({"own_code.py": PLAIN.replace(old, new, 1)})
    assert code("own_code") != before


def test_a_module_counts_alone_or_with_its_package(written):
    written({"own_package/__init__.py": "", "own_package/nets.py": "A = 1\n", "own_package/deep/more.py": "B = 1\n"})
    alone, whole = code("own_package.nets"), code("own_package.nets", of_package=True)
    assert code("own_package", of_package=True) == whole
    written({"own_package/deep/more.py": "B = 2\n"})
    assert code("own_package.nets") == alone
    assert code("own_package.nets", of_package=True) != whole


def test_a_module_of_a_distribution_that_is_one_file_is_that_file(written):
    written({"own_code.py": PLAIN, "another.py": "A = 1\n"})
    before = code("own_code", of_package=True)
    written({"another.py": "A = 2\n"})
    assert code("own_code", of_package=True) == before != ""


@pytest.mark.parametrize("module", ["json", "random", "torch.nn", "jembench.sampling.factories", "sys", "no.such", ""])
def test_what_is_installed_or_is_not_there_has_no_code_of_its_own(module):
    assert code(module) == ""


def test_where_packages_with_a_version_lie():
    assert sources._is_installed(sources.Path(random.__file__))
    assert sources._is_installed(sources.Path(jembench.__file__))


def test_options_that_lead_to_code(written):
    written({"own_code.py": PLAIN, "own_package/__init__.py": "", "own_package/nets.py": "A = 1\n"})
    options = {
        "net": "own_package.nets:build",
        "module": "own_code:draw",
        "size": 3,
        "sampler": "sgld:steps=2",
        "features": "no_such:thing",
        "other": "json:loads",
    }
    found = code_of_options(options)
    assert found == {"net": code("own_package.nets"), "module": code("own_code")}
