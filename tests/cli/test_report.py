import json
from pathlib import Path


def test_no_store(jembench):
    missing = (
        "Error: There are no results and no store runs yet: `jembench run hybrid` makes some.\n"
    )
    for command in (
        "report",
        "report --claims",
        "report --format json",
        "figures",
        "compare jem baseline",
    ):
        assert jembench(*command.split()) == (2, "", missing)
    assert jembench("report", "--store", "my runs").err == (
        "Error: There are no results and no store my runs yet: `jembench run hybrid --store 'my "
        "runs'` makes some.\n"
    )
    assert list(Path.cwd().iterdir()) == []


def test_an_empty_store(jembench):
    Path("runs").mkdir()
    done = jembench("report")
    assert done == (0, "runs holds no results yet: `jembench run hybrid` makes some.\n", "")


def test_all_that_the_store_holds(run, jembench):
    run()
    run(models="zoo_of_tests:factored", metrics="accuracy")
    done = jembench("report", "--format", "json")
    assert (done.code, done.err) == (0, "")
    rows = [(row["model"], row["metric"], row["status"]) for row in json.loads(done.out)["rows"]]
    assert {model for model, *_ in rows} == {
        "zoo_of_tests:classifier",
        "zoo_of_tests:factored",
        "zoo_of_tests:jem",
    }
    assert [row for row in rows if row[0] == "zoo_of_tests:factored"] == [
        ("zoo_of_tests:factored", "accuracy", "ok")
    ]
    assert "not run: `jembench run` measures what is missing." in jembench("report", "hybrid").out


def test_a_report_in_a_file(run, jembench):
    run()
    for arguments in (
        ["--format", "csv"],
        ["--format", "latex", "--label", "table"],
        ["--claims", "--format", "json"],
    ):
        printed = jembench("report", *arguments)
        assert jembench("report", *arguments, "--output", "out/table") == (0, "out/table\n", "")
        assert Path("out/table").read_text() == printed.out
        Path("out/table").unlink()
    assert jembench("report", "--format", "latex", "--output", "out/table").code == 0
    assert r"\label{tab:table}" in Path("out/table").read_text()
    done = jembench("report", "--format", "csv", "--label", "table")
    assert (done.code, "--label is for LaTeX" in done.err) == (2, True)
    Path("out/thesis.txt").write_text("mine")
    done = jembench("report", "--format", "latex", "--output", "out/thesis.txt")
    assert (done.code, done.out) == (2, "")
    assert "thesis.txt exists" in done.err
    assert Path("out/thesis.txt").read_text() == "mine"
    assert jembench("report", "--output", "out/thesis.txt", "--force").code == 0
    assert Path("out/thesis.txt").read_text() == jembench("report").out


def test_results_on_part_of_the_images_are_kept_apart(run, jembench):
    run("--limit", "10", models="zoo_of_tests:classifier", metrics="accuracy,ece")
    alone = jembench("report")
    assert alone == jembench("report", "--limit", "10")
    assert alone.out.splitlines()[1].endswith("· seed 0 · 10 test images")
    run(models="zoo_of_tests:classifier", metrics="accuracy")
    rows = json.loads(jembench("report", "--limit", "10", "--format", "json").out)["rows"]
    assert [row["n"] for row in rows] == [10, 10]
    assert "Left out: 1 outcome on all test images" in jembench("report", "--limit", "10").err
    assert (
        jembench("report").err
        == "Left out: 2 outcomes on 10 of the test images; `jembench report` shows them with "
        "--limit 10.\n"
    )


def test_a_failure_is_the_exit_code_and_its_traceback_is_shown_on_demand(run, jembench):
    run(models="zoo_of_tests:classifier", metrics="accuracy,zoo_of_tests:raises")
    done = jembench("report")
    assert done.code == 1
    assert done.err.startswith(
        "Some results failed; `jembench --debug report` shows their tracebacks."
    )
    assert "ZeroDivisionError: a metric's own bug" in done.out
    debugging = jembench("--debug", "report")
    assert (debugging.code, debugging.out) == (1, done.out)
    assert "Traceback (most recent call last):" in debugging.err
    assert "in _raises" in debugging.err
