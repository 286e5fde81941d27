import json
import sys

import pytest

from jembench.catalog import discovery
from jembench.interfaces import API


@pytest.fixture
def mixture(zoo):
    """A distribution: models without fault, faulty, not importable, one that needs an option, a
    suite and formats.
    """
    info = zoo / "mixed_bag-2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: Mixed_Bag\nVersion: 2.0\n")
    (info / "entry_points.txt").write_text(
        "[jembench.models]\nsound = sound_models:EnergyAlone\nfaulty = faulty_models:Squeezes\n"
        "absent = zoo_cli_raises:build\nneedy = zoo_cli_needy:build\n"
        "[jembench.suites]\nbag = zoo_cli_bag\n"
        f"[jembench.api]\n{API} = sound_models\n"
        "[jembench.formats]\nhands = zoo_cli_needy:build\nnobody = zoo_cli_raises:build\n"
    )
    (zoo / "zoo_cli_bag").mkdir()
    (zoo / "zoo_cli_bag" / "__init__.py").write_text("")
    (zoo / "zoo_cli_needy.py").write_text("def build(data, *, width: int): ...\n")
    discovery.catalogue.cache_clear()
    yield
    for module in ("zoo_cli_needy", "zoo_cli_bag"):
        sys.modules.pop(module, None)


@pytest.fixture
def rows(jembench, mixture):
    """All checks of the distribution, by component and check."""
    done = jembench("plugin", "check", "mixed-bag", "--format", "json")
    assert done.code == 1
    return {(row["component"], row["check"]): row for row in json.loads(done.out)}


def test_a_row_a_check(rows):
    row = rows["faulty", "each-image-alone"]
    assert (row["kind"], row["status"]) == ("models", "failed")
    assert "squeeze(1) instead of squeeze()" in row["message"]
    assert row["promise"].startswith(
        "In evaluation mode the output for an image depends neither on the other images"
    )
    assert rows["sound", "each-image-alone"]["status"] == "passed"


def test_nothing_else_is_wrong(rows):
    assert {key for key, row in rows.items() if row["status"] == "failed"} == {
        ("faulty", "each-image-alone"),
        ("absent", "can-be-imported"),
        ("nobody", "can-be-imported"),
    }


def test_what_has_no_checks_of_its_own_can_be_imported_or_not(rows):
    assert (
        rows["hands", "can-be-imported"]["status"]
        == rows["bag", "can-be-imported"]["status"]
        == "passed"
    )
    for name in ("nobody", "absent"):
        assert "RuntimeError: no food" in rows[name, "can-be-imported"]["message"]


def test_what_needs_an_option_is_to_be_checked_by_its_spec(rows):
    row = rows["needy", "can-be-imported"]
    assert row["status"] == "skipped"
    assert 'jembench plugin check --kind models "needy:width=..."' in row["message"]


def test_all_fine_is_0(jembench, mixture):
    assert jembench("plugin", "check", "--kind", "models", "sound").code == 0


def test_what_plugins_print_goes_to_stderr(jembench, zoo):
    done = jembench("plugin", "check", "--kind", "models", "lion:net=a", "--format", "json")
    assert done.code == 1
    assert {row["check"] for row in json.loads(done.out) if row["status"] == "failed"} == {
        "can-be-made"
    }
    assert "a plugin that talks" in done.err


def test_a_model_of_one_size_is_checked_at_that_size(jembench, zoo):
    (zoo / "zoo_cli_sized.py").write_text(
        "from torch import nn\n\n\nclass Sized(nn.Module):\n    def __init__(self, data):\n       "
        " super().__init__()\n        self.net = nn.Linear(3072, 1)\n\n    def energy(self, x):\n "
        "       return self.net(x.flatten(1)).squeeze(1)\n"
    )
    how = ("plugin", "check", "--kind", "models", "zoo_cli_sized:Sized")
    done = jembench(*how)
    assert (done.code, done.out.count(" failed "), max(map(len, done.out.splitlines())) <= 100) == (
        1,
        1,
        True,
    )
    done = jembench(*how, "--dataset", "svhn:download=true")
    assert (done.code, "It takes only (3, 32, 32)" in done.out) == (0, True)
