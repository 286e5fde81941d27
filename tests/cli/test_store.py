"""The commands of ``jembench store``; what they do is tested in tests/store and tests/report."""

import json
import subprocess
import sys

import pytest
from small_store import small_store


@pytest.fixture
def root(tmp_path):
    return small_store(tmp_path / "small").root


def test_list(jembench, root):
    (root / "fits" / "jem-digits-digits-s2-jem002").mkdir()
    done = jembench("store", "list", "--store", root)
    rows = [line.split() for line in done.out.splitlines()]
    assert rows[0] == [
        "id",
        "model",
        "dataset",
        "recipe",
        "seed",
        "iteration",
        "results",
        "size",
        "time",
    ]
    assert rows[2][:7] == ["baseline000", "baseline", "digits", "digits", "0", "20", "4"]
    assert "Not finished: jem-digits-digits-s2-jem002" in done.out
    assert f"{root}: 4 trained models; fits " in done.out
    listed = json.loads(jembench("store", "list", "--store", root, "--format", "json").out)
    assert listed["fits"][0]["id"] == "baseline000"
    assert listed["sizes"]["cells"] > 1000


def test_merge_exits_with_0_only_if_everything_was_copied(jembench, root):
    done = jembench("store", "merge", root)
    assert (done.code, done.out) == (0, "runs: 20 fits and files: 20 copied.\n")
    assert jembench("store", "merge", root).out == "runs: 0 fits and files.\n"
    path = next(root.glob("cells/ece-jem*"))
    path.write_bytes(path.read_bytes()[:-9])
    next(root.parent.glob("here/runs/cells/nll-*")).unlink()
    done = jembench("store", "merge", root, root)
    assert done.code == 1
    assert f"damaged   {path}" in done.out
    assert done.out.endswith("runs: 3 fits and files: 2 damaged, 1 copied.\n")


def test_merge_begins_only_if_all_stores_are_there(jembench, root, tmp_path):
    done = jembench("store", "merge", root, "nowhere")
    assert (done.code, done.err) == (
        2,
        "Error: There is no store nowhere. Name the folder of a store.\n",
    )
    assert not (tmp_path / "here" / "runs").exists()


def test_site_names_its_pages_and_exits_with_1_if_a_store_is_left_out(jembench, root, tmp_path):
    done = jembench("store", "site", root, "--output", "site")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("site/index.html\nsite/")
    path = next(root.glob("cells/ece-jem*"))
    path.write_bytes(path.read_bytes()[:-9])
    done = jembench("store", "site", root, "--output", "site")
    assert (done.code, done.out) == (1, "site/index.html\n")
    assert done.err.startswith(f"Left out: {root}: cells/{path.name} is damaged: ")


def test_gc_shows_first_and_removes_with_yes(jembench, root):
    checkpoints = list(root.glob("fits/*/checkpoint-*"))
    shown = jembench("store", "gc", "--store", root)
    assert all(path.exists() for path in checkpoints)
    assert shown.out.count("the training has ended") == 4
    assert ": 4 files, " in shown.out
    assert shown.out.endswith("that can be removed with --yes.\n")
    done = jembench("store", "gc", "--store", root, "--yes")
    assert done.out.endswith(", removed.\n")
    assert not any(path.exists() for path in checkpoints)
    assert jembench("store", "gc", "--store", root).out == f"{root}: 0 files, 0 bytes, to remove.\n"


def test_no_command_imports_torch(root, tmp_path):
    code = (
        "import sys; from jembench.cli.main import main; root, other = sys.argv[1:]\n"
        "for line in ('list', 'verify', 'gc --yes', f'merge {other}'):\n"
        "    assert main(['store', *line.split(), '--store', root]) == 0, line\n"
        "assert not {'torch', 'safetensors'} & set(sys.modules)"
    )
    second = small_store(tmp_path / "other").root
    subprocess.run([sys.executable, "-c", code, str(root), str(second)], check=True)
