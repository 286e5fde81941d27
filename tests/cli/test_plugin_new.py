from pathlib import Path

import pytest

from jembench.testing.scaffold import KINDS


def test_it_says_what_it_wrote_and_the_next_three_commands(jembench):
    done = jembench("plugin", "new", "model", "my-ebm")
    assert done.code == 0, done.err
    *written, told, install, check, run = [line for line in done.out.splitlines() if line]
    assert sorted(written) == sorted(
        str(path) for path in Path("my-ebm").rglob("*") if path.is_file()
    )
    assert "my-ebm/README.md" in told
    assert [install, check, run] == [
        "  pip install -e 'my-ebm[test]'",
        "  jembench plugin check my-ebm",
        "  jembench run hybrid --models my-ebm",
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_can_be_written_elsewhere(jembench, kind, tmp_path):
    folder = tmp_path / "else where"
    done = jembench("plugin", "new", kind, "my-own", "--folder", folder)
    assert done.code == 0, done.err
    assert (folder / "my_own" / "__init__.py").is_file()
    assert f"  pip install -e '{folder}[test]'" in done.out.splitlines()
    assert list(Path().iterdir()) == []


def test_the_commands_of_the_readme_are_those_that_are_told(jembench):
    for kind in KINDS:
        told = jembench("plugin", "new", kind, f"my-{kind}").out.splitlines()[-2:]
        lines = Path(f"my-{kind}/README.md").read_text().splitlines()
        assert [line.strip() for line in told] == lines[
            lines.index('pip install -e ".[test]"') + 1 :
        ][:2]


def test_a_second_time_it_is_refused(jembench):
    assert jembench("plugin", "new", "model", "my-ebm").code == 0
    done = jembench("plugin", "new", "model", "my-ebm")
    assert (done.code, done.out) == (2, "")
    assert (
        done.err
        == "Error: my-ebm exists already and is not an empty folder. Choose another one with "
        "--folder.\n"
    )
