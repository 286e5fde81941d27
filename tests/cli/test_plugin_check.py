"""``jembench plugin check``."""

import json
import sys

import pytest

from jembench import registry


@pytest.fixture
def mixture(zoo):
    """A distribution of models: without fault, faulty, excused, not importable, and one that needs an option."""
    info = zoo / "mixed_bag-2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: Mixed_Bag\nVersion: 2.0\n")
    (info / "entry_points.txt").write_text(
        "[jembench.models]\nsound = sound_models:EnergyAlone\nfaulty = faulty_models:Squeezes\n"
        "excused = faulty_models:excused\nabsent = zoo_cli_raises:build\nneedy = zoo_cli_needy:build\n"
        "[jembench.suites]\nbag = zoo_cli_suites\n"
    )
    (zoo / "zoo_cli_needy.py").write_text("def build(data, *, width: int): ...\n")
    registry.catalogue.cache_clear()
    yield
    sys.modules.pop("zoo_cli_needy", None)


@pytest.fixture
def rows(jembench, mixture):
    """All checks of the distribution, by component and check."""
    done = jembench("plugin", "check", "mixed-bag", "--format", "json")
    assert done.code == 1
    return {(row["component"], row["check"]): row for row in json.loads(done.out)}


def test_a_row_a_check(rows):
    row = rows["faulty", "one-image"]
    assert (row["kind"], row["status"], row["is_fine"]) == ("models", "failed", False)
    assert "squeeze(1) in place of squeeze()" in row["message"]
    assert row["promise"] == "A batch of one image is answered as any other."
    assert rows["sound", "one-image"]["status"] == "passed"


def test_nothing_else_is_wrong(rows):
    wrong = {key for key, row in rows.items() if not row["is_fine"]}
    assert wrong == {("faulty", "one-image"), ("mixed-bag/absent", "can-be-imported")}


def test_an_excuse_stands_beside_its_failure(rows):
    row = rows["excused", "samples-within-bounds"]
    assert (row["status"], row["message"]) == ("expected failure", "It is drawn on a larger canvas on purpose.")


def test_what_cannot_be_imported_is_a_row(rows):
    assert "RuntimeError: no food" in rows["mixed-bag/absent", "can-be-imported"]["message"]


def test_what_needs_an_option_is_to_be_checked_by_its_spec(rows):
    row = rows["needy", "can-be-imported"]
    assert row["status"] == "skipped"
    assert 'jembench plugin check --kind models "needy:width=..."' in row["message"]


def test_the_table(jembench, mixture, table):
    done = jembench("plugin", "check", "--kind", "models", "sound", "faulty")
    assert done.code == 1
    lines = table(done.out)
    assert ["model", "sound", "one-image", "passed"] in lines
    assert any(line[:4] == ["model", "faulty", "one-image", "failed"] for line in lines)
    assert done.out.splitlines()[-1].endswith("1 failed")


def test_all_fine_is_0(jembench, mixture):
    assert jembench("plugin", "check", "--kind", "models", "sound", "excused").code == 0


def test_a_success_that_nobody_expected_is_1(jembench):
    done = jembench("plugin", "check", "--kind", "models", "faulty_models:excused_for_nothing")
    assert done.code == 1
    assert "unexpected success" in done.out


def test_what_plugins_print_goes_to_stderr(jembench, zoo):
    done = jembench("plugin", "check", "--kind", "models", "lion:net=a", "--format", "json")
    assert done.code == 1
    assert {row["check"] for row in json.loads(done.out) if row["status"] == "failed"} == {"can-be-made"}
    assert "a plugin that talks" in done.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["mixed-bog"], "no distribution with plugins named 'mixed-bog'. Nearest: mixed-bag"),
        (["--kind", "models", "soud"], "no model named 'soud'. Nearest: sound"),
        (["--kind", "models", "sound:width=2"], "no option of sound named 'width'"),
        (["--kind", "models", "needy"], "needy needs width"),
        (["--kind", "suites", "bag"], "Invalid value for '--kind'"),
        ([], "Missing argument 'PACKAGE...'"),
    ],
)
def test_wrong_usage_is_2(jembench, mixture, arguments, words):
    done = jembench("plugin", "check", *arguments)
    assert (done.code, done.out) == (2, "")
    assert words in done.err


def test_a_distribution_without_such_components_is_told(jembench, zoo):
    (zoo / "zoo_park-1.0.dist-info" / "entry_points.txt").write_text("[jembench.suites]\nzoo = zoo_cli_suites\n")
    registry.catalogue.cache_clear()
    done = jembench("plugin", "check", "zoo-park")
    assert done.code == 2
    assert "zoo-park brings none of models, samplers, metrics, datasets" in done.err
