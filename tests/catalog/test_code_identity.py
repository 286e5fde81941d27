import hashlib
import importlib
import sys
import zipfile

import pytest

from jembench.catalog import code_identity
from jembench.catalog.code_identity import _digest, code

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
    """Write files of modules that can be imported, by their paths, and forget afterwards what was
    imported of them.
    """
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


IMPORTS = {
    "plain": ("own_nets.py", "import own_help"),
    "names": ("own_nets.py", "from own_help import anything as other"),
    "star": ("own_nets.py", "from own_help import *"),
    "in a function": ("own_nets.py", "def late():\n    import own_help"),
    "in a condition": (
        "own_nets.py",
        "try:\n    import no_such\nexcept ImportError:\n    import own_help as no_such",
    ),
    "by its name": ("own_nets.py", "import importlib\nhelp = importlib.import_module('own_help')"),
    "by its file": ("own_nets.py", "SOURCE = open(FOLDER / 'own_help.py').read()"),
    "indirectly": ("own_nets.py", "import own_other"),
    "from a package": ("own_pack/nets.py", "import own_help"),
    "relative": ("own_pack/nets.py", "from . import near"),
    "relative name": ("own_pack/nets.py", "from .near import anything"),
    "relative parent": ("own_pack/deep/nets.py", "from ..near import anything"),
    "relative by its name": ("own_pack/nets.py", "import_module('.near', __package__)"),
    "of the own package": ("own_pack/nets.py", "import own_pack.near"),
    "package": ("own_nets.py", "import own_pack"),
    "module of a package": ("own_nets.py", "from own_pack import near"),
    "folder": ("own_nets.py", "from own_folder import near"),
    "in a circle": ("own_nets.py", "import own_circle"),
}


@pytest.mark.parametrize(("file", "line"), IMPORTS.values(), ids=IMPORTS)
def test_what_a_file_imports_beside_it_counts(written, file, line):
    helpers = {
        "own_help.py": "",
        "own_other.py": "import own_help\n",
        "own_circle.py": "import own_help, own_nets\n",
        "own_folder/near.py": "",
        "own_pack/__init__.py": "from . import near\n",
        "own_pack/near.py": "",
        "own_pack/deep/__init__.py": "",
    }
    module = file.removesuffix(".py").replace("/", ".")
    written({**helpers, file: line, "own_unused.py": ""})
    before = code(module)
    written({"own_unused.py": "A = 1\n"})
    assert code(module) == before
    changed = ("own_help.py", "own_pack/near.py", "own_folder/near.py")
    written(dict.fromkeys(changed, "# a remark\n"))
    assert code(module) == before != ""
    written(dict.fromkeys(changed, "A = 1\n"))
    assert code(module) != before


def test_without_imports_beside_it_a_file_counts_as_it_did(written):
    expected = hashlib.sha256(f":{_digest(PLAIN.encode())};".encode()).hexdigest()[:16]
    written({"own_code.py": PLAIN, "own_help.py": "", "torch.py": ""})
    assert code("own_code") == expected


def test_comments_and_layout_change_nothing(written):
    written({"own_code.py": PLAIN})
    before = code("own_code")
    written(
        {
            "own_code.py": PLAIN.replace("# how wide\n", "")
            .replace("  # for now", "")
            .replace("\n\n\n", "\n\n")
        }
    )
    assert code("own_code") == before != ""
    written({"own_code.py": PLAIN.replace("import math\n", "import math  # for pi\n\n\n# and e\n")})
    assert code("own_code") == before
    written({"own_code.py": PLAIN.replace("WIDTH = 4", "WIDTH = (\n    4\n)").replace("'", '"')})
    assert code("own_code") == before


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("WIDTH = 4", "WIDTH = 5"),
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
    written(
        {
            "own_package/__init__.py": "",
            "own_package/nets.py": "A = 1\n",
            "own_package/deep/more.py": "B = 1\n",
        }
    )
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


@pytest.mark.parametrize(
    "module", ["json", "random", "torch.nn", "jembench.sampling.factories", "sys", "no.such", ""]
)
def test_what_is_installed_or_is_not_there_has_no_code_of_its_own(module):
    assert code(module) == ""


def install(folder, record="own_installed.py,,\nother/own_code.py,,\n", **files):
    """A distribution as an installer leaves it, and a module that its list of files may name."""
    info = folder / "own_installed-1.0.dist-info"
    info.mkdir(exist_ok=True)
    for name, text in {
        "METADATA": "Name: own-installed\nVersion: 1.0\n",
        "RECORD": record,
        **files,
    }.items():
        (info / name).write_text(text)
    code_identity._records.cache_clear()


def test_what_the_list_of_a_distribution_names_has_a_version(written, tmp_path):
    written({"own_installed.py": PLAIN, "own_code.py": PLAIN})
    assert code("own_installed") == code("own_code") != ""
    install(tmp_path)
    assert code("own_installed") == ""
    assert code("own_code") != ""  # which lies beside it, and is not named
    written({"own_package/__init__.py": "", "own_package/nets.py": "A = 1\n"})
    install(tmp_path, "own_package/__init__.py,sha256=a,0\nown_package/nets.py,sha256=b,6")
    assert code("own_package.nets") == code("own_package", of_package=True) == ""


@pytest.mark.parametrize(
    ("origin", "has_version"),
    [
        ('{"url": "file:///here", "dir_info": {"editable": true}}', False),
        ('{"url": "file:///here", "dir_info": {}}', True),
        ('{"url": "https://there", "archive_info": {}}', True),
    ],
)
def test_what_is_installed_to_be_edited_has_none(written, tmp_path, origin, has_version):
    written({"own_installed.py": PLAIN})
    install(tmp_path, **{"direct_url.json": origin})
    assert (code("own_installed") == "") == has_version


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_what_ends_lines_changes_nothing(end):
    assert _digest(PLAIN.replace("\n", end).encode()) == _digest(PLAIN.encode())


@pytest.mark.parametrize("odd", ["\f", "\v", "\x1c", "\x85", "\u2028"])
def test_no_odd_character_hides_what_stands_behind_it(odd):
    text = f"A = '{odd}'\n\f\n{PLAIN}" if odd != "\f" else f"import math\n\f\n{PLAIN}"
    assert _digest(text.encode()) != _digest(text.replace("WIDTH = 4", "WIDTH = 5").encode())
    assert _digest(text.encode()) == _digest(text.replace("  # for now", "").encode())


def test_a_file_in_another_encoding():
    latin = "# -*- coding: latin-1 -*-\nNAME = 'Grün'  # grün\n".encode("latin-1")
    assert _digest(latin) == _digest("NAME = 'Grün'".encode())


@pytest.mark.parametrize("broken", ["def (", "A = '\0'", f"A = {'(' * 500}"])
def test_what_cannot_be_parsed_or_written_is_hashed_as_it_is(broken):
    assert _digest(broken.encode()) != _digest(f"{broken} ".encode())


def test_an_odd_escape_warns_where_it_is_imported_alone(recwarn):
    assert _digest(b"A = '\\d'") == _digest(b"A = '\\d' #")
    assert not recwarn.list


def test_what_editors_leave_in_a_package_is_not_looked_at(written, tmp_path):
    written({"own_package/__init__.py": "", "own_package/nets.py": "A = 1\n"})
    before = code("own_package", of_package=True)
    written({"own_package/.ipynb_checkpoints/nets-checkpoint.py": "A = 0\n"})
    (tmp_path / "own_package" / ".#nets.py").symlink_to("somebody@somewhere.1")
    (tmp_path / "own_package" / "folder.py").mkdir()
    assert code("own_package", of_package=True) == before


@pytest.mark.parametrize(
    "line", ["raise RuntimeError('no')", "raise SystemExit(7)", "x = (", "import no_such_module"]
)
def test_a_package_that_cannot_be_imported_is_told_of_elsewhere(written, line):
    written({"own_broken/__init__.py": line, "own_broken/nets.py": "A = 1\n"})
    assert code("own_broken.nets") == ""


def test_a_module_in_a_zip_is_no_file(tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "own.zip", "w") as archive:
        archive.writestr("own_zipped.py", PLAIN)
    monkeypatch.syspath_prepend(str(tmp_path / "own.zip"))
    assert code("own_zipped") == ""


def test_of_an_imported_module_it_is_the_code_that_runs(written):
    written({"own_code.py": PLAIN})
    imported = importlib.import_module("own_code")
    before = code("own_code")
    written({"own_code.py": PLAIN.replace("4", "5")})
    assert (imported.WIDTH, code("own_code")) == (4, before)
    del sys.modules["own_code"]
    importlib.invalidate_caches()
    assert code("own_code") != before


def test_the_digest_of_a_package_is_that_of_the_files_of_an_installed_one_too(written):
    digests = set()
    for change in ("", "# a comment"):
        written(
            {"own_pack_of_digest/__init__.py": "", "own_pack_of_digest/inner.py": PLAIN + change}
        )
        code_identity.digest.cache_clear()
        digests |= {code_identity.digest("own_pack_of_digest")}
    assert len(digests) == 2
    assert code_identity.digest("jembench") != "" == code("jembench")
    assert code_identity.digest("no_such_package") == ""
