import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest


@pytest.fixture
def measured(run):
    """A store with a classifier and its calibration."""
    run(models="zoo_of_tests:classifier", metrics="accuracy,ece")
    return Path("runs")


def files(folder):
    return sorted(path.name for path in Path(folder).iterdir())


def test_a_store_without_anything_to_draw(run, jembench):
    for limit in ("5", "6"):
        run("--limit", limit, models="zoo_of_tests:classifier", metrics="accuracy")
    done = jembench("figures", "hybrid")
    assert done[:2] == (
        0,
        "runs holds no results that have figures yet: `jembench run hybrid` makes some.\n",
    )
    for limit in ("5", "6"):
        assert (
            f"1 outcome on {limit} of the test images; `jembench report` shows them with --limit "
            f"{limit}." in done.err
        )


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--figures", "nosuch"], "no figure of these results named 'nosuch'"),
        (["--output", "taken"], "is a file"),
    ],
)
def test_an_error_stands_alone(measured, jembench, more, said):
    Path("taken").write_text("mine")
    Path("runs/cells/torn.json").write_text("{")
    done = jembench("figures", *more)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert len(done.err.splitlines()) == 1
    assert Path("taken").read_text() == "mine"


def test_the_files_that_were_written_are_printed(measured, jembench):
    done = jembench("figures")
    assert done.code == 0
    written = []
    for line in done.out.splitlines():
        figure, endings = line.split(": ")
        written += [f"{Path(figure).name}.{ending}" for ending in endings.split(", ")]
    assert sorted(written) == files("runs/figures")
    assert {Path(name).suffix for name in written} == {".png", ".svg", ".csv"}
    for path in Path("runs/figures").glob("*.svg"):
        ElementTree.parse(path)


def test_test_images_that_are_not_there_are_said_and_fail_only_if_they_are_asked_for(
    measured, jembench, monkeypatch
):
    done = jembench("figures", "--format", "svg")
    assert done.code == 0
    assert done.err.startswith("Left out: the figure examples-zoo-of-tests-data-")
    assert "runs code that you did not name" in done.err
    assert jembench("figures", "--figures", "examples").code == 1
    monkeypatch.setenv("JEMBENCH_TRUST", "zoo_of_tests:data")
    done = jembench("figures", "--figures", "examples", "--format", "svg")
    assert (done.code, done.err) == (0, "")
    assert len(done.out.splitlines()) == 1


def test_only_the_formats_the_folder_and_the_suite_that_were_asked_for(measured, jembench):
    done = jembench("figures", "hybrid", "--format", "svg", "--output", "a/b")
    assert done.code == 0
    assert {Path(name).suffix for name in files("a/b")} == {".svg", ".csv"}
    assert not Path("runs/figures").exists()


def test_torn_arrays_stop_no_other_figure(run, jembench):
    run(models="zoo_of_tests:classifier,zoo_of_tests:jem", metrics="ece")
    torn = next(Path("runs/arrays").glob("*classifier*"))
    torn.write_bytes(torn.read_bytes()[:50])
    done = jembench("figures", "--format", "png", "--figures", "reliability")
    assert done.code == 1
    assert done.err.startswith(f"Left out: {torn} cannot be read")
    assert done.err.count("\n") == 1
    assert any("reliability" in line and "jem" in line for line in done.out.splitlines())
    assert not any("classifier" in line for line in done.out.splitlines())


def test_a_bug_in_one_figure_is_one_line_and_its_traceback_is_shown_on_demand(
    measured, jembench, monkeypatch
):
    from jembench.report.figures import calibration

    def fail(*arguments):
        raise ZeroDivisionError("a figure's\nown bug")

    monkeypatch.setattr(calibration, "diagram", fail)
    command = ("figures", "--format", "png", "--figures", "reliability")
    done = jembench(*command)
    assert done.code == 1
    assert done.err.count("\n") == 1
    assert done.err.endswith("cannot be drawn: ZeroDivisionError: a figure's own bug\n")
    assert "Traceback (most recent call last):" in jembench("--debug", *command).err


def test_some_figures_as_pdf_of_a_width_under_a_display_name(measured, jembench):
    name = "reliability"
    style = (
        "--format",
        "pdf",
        "--width",
        "4in",
        "--no-titles",
        "--name",
        "Ours=zoo_of_tests:classifier",
    )
    done = jembench("figures", "--output", "some", "--figures", name, *style)
    assert (done.code, done.err) == (0, "")
    assert {Path(path).suffix for path in files("some")} == {".pdf", ".csv"}
    assert {path.partition("-")[0] for path in files("some")} == {name}
    pdf = next(Path("some").glob("*.pdf")).read_bytes()
    assert re.search(rb"/MediaBox \[\s*0 0 288 ", pdf)
