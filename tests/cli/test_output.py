"""What may be written over: what jembench wrote, and nothing else."""

import csv
import os

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from jembench.cli.output import check_file, write_file
from jembench.errors import JembenchError, SpecError
from jembench.report.figures.planned import Drawing, Planned, render


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def files():
    """A figure's files by their endings."""
    rows = [{"x": 1, "y": 2}]
    return {
        name.removeprefix("figure"): content
        for name, content in render(Planned("figure", lambda: Drawing(Figure(), rows)), ["png", "svg"]).items()
    }


@pytest.mark.parametrize("ending", [".png", ".svg", ".csv"])
def test_what_was_written_may_be_written_again(here, files, ending):
    for _ in range(2):
        write_file(here / f"a{ending}", files[ending], force=False)
    assert (here / f"a{ending}").read_bytes() == files[ending]


@pytest.mark.parametrize("ending", [".png", ".svg", ".csv"])
def test_what_somebody_else_wrote_is_lost_by_force_alone(here, files, ending):
    path = here / f"a{ending}"
    if ending == ".csv":
        with path.open("w") as stream:
            csv.writer(stream).writerows([["x", "z"], [1, 2]])
    elif ending == ".png":
        Image.fromarray(np.zeros((4, 4), np.uint8)).save(path)
    else:
        Figure().savefig(path)
    before = path.read_bytes()
    with pytest.raises(SpecError, match="what it holds would be lost"):
        write_file(path, files[ending], force=False)
    assert path.read_bytes() == before
    write_file(path, files[ending], force=True)
    assert path.read_bytes() == files[ending]


@pytest.mark.parametrize("opening", ["{\n", '{\n  "schema": 1,\n  "rows": {}\n', ""])
def test_a_text_is_ours_if_it_begins_with_the_same_three_lines(here, opening):
    path = here / "a.json"
    content = b'{\n  "schema": 1,\n  "rows": [\n  ]\n}\n'
    write_file(path, content, force=False)
    write_file(path, content.replace(b"\n  ]", b'\n    {"model": "jem"}\n  ]'), force=False)
    path.write_text(opening)
    with pytest.raises(SpecError, match="what it holds would be lost"):
        write_file(path, content, force=False)


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("folder.png", r"a folder. Name a file in it, for example .*folder.png/samples.png"),
        ("link.png", "which is a link"),
        ("dangling.png", "which is a link"),
        ("pipe.png", "which is a device or a pipe"),
        ("thesis.tex", "its name must end in .png"),
        ("file/a.png", "Not a directory"),
        ("x" * 300 + ".png", "File name too long"),
    ],
)
def test_what_is_no_ordinary_file_is_not_touched(here, files, name, message, force):
    (here / "folder.png").mkdir()
    write_file(here / "target.png", files[".png"], force=False)
    (here / "link.png").symlink_to("target.png")
    (here / "dangling.png").symlink_to("nothing.png")
    os.mkfifo(here / "pipe.png")
    (here / "file").touch()
    before = sorted(here.iterdir())
    with pytest.raises(JembenchError, match=message):
        check_file(here / name, ".png", force=force)
    assert sorted(here.iterdir()) == before
