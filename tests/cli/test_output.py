import os

import pytest

from jembench.cli.output import check_file, write_file
from jembench.errors import JembenchError, SpecError


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_an_existing_file_is_replaced_by_force_alone(here):
    path = here / "a.csv"
    write_file(path, b"a", force=False)
    with pytest.raises(
        SpecError, match=r"exists\. Name another file with --output, or replace it with --force\."
    ):
        write_file(path, b"b", force=False)
    assert path.read_bytes() == b"a"
    write_file(path, b"b", force=True)
    assert path.read_bytes() == b"b"


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("folder.png", "which is no ordinary file"),
        ("link.png", "which is no ordinary file"),
        ("dangling.png", "which is no ordinary file"),
        ("pipe.png", "which is no ordinary file"),
        ("thesis.tex", "its name must end in .png"),
        ("file/a.png", r"Not a directory\. Choose another folder with --output\."),
        ("/proc/x.png", r"Cannot write /proc/x\.png: "),
        ("x" * 300 + ".png", "File name too long"),
    ],
)
def test_what_is_no_ordinary_file_is_not_touched(here, name, message, force):
    (here / "folder.png").mkdir()
    write_file(here / "target.png", b"", force=False)
    (here / "link.png").symlink_to("target.png")
    (here / "dangling.png").symlink_to("nothing.png")
    os.mkfifo(here / "pipe.png")
    (here / "file").touch()
    before = sorted(here.iterdir())
    with pytest.raises(JembenchError, match=message):
        check_file(here / name, ".png", force=force)
    assert sorted(here.iterdir()) == before
