"""``--jobs``, ``--executor`` and ``--detach``: which executor carries a run out, and what is
refused.
"""

import os
import re
import time
from pathlib import Path

import pytest

from jembench.running import session


@pytest.fixture
def chosen(run, monkeypatch):
    """Run with options; gives the executor that would be used, and nothing is carried out."""

    def chosen(*options):
        executors = []

        def run_plan(plan, store, how, *_):
            executors.append(how.executor)
            return session.Finished([], None)

        with monkeypatch.context() as patch:
            patch.setattr(session, "run_plan", run_plan)
            done = run(*options)
        assert (done.code, len(executors)) == (0, 1), done.err
        return executors[0]

    return chosen


@pytest.mark.parametrize(
    ("options", "executor"),
    [
        ([], "auto"),
        (["-j", "2"], "processes:jobs=2"),
        (["--jobs", "auto"], "processes"),
        (["-j", "4", "--executor", "auto"], "processes:jobs=4"),
        (["--executor", "local"], "local"),
    ],
)
def test_the_executor_that_is_chosen(chosen, options, executor):
    assert chosen(*options) == executor


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        *(
            (["-j", text], "jobs of processes is ")
            for text in ("0", "x", "1.5", "-1", "100000000000000000000")
        ),
        (["-j", ""], "The text after -j is empty"),
        (
            ["-j", "2", "--executor", "local"],
            "--jobs starts workers on this machine, --executor may name others",
        ),
        (
            ["-j", "2", "--device", "cuda:1"],
            "the executor processes:jobs=2 assigns a GPU to each worker",
        ),
        (["--executor", "nowhere"], "There is no executor named 'nowhere'"),
        (["--executor", "processes:jobs=0"], "jobs of processes is 0; it must be at least 1"),
    ],
)
@pytest.mark.parametrize("more", [[], ["--detach"]])
def test_what_is_refused_before_anything_starts(run, options, wrong, more):
    done = run(*options, *more)
    assert done.code == 2
    assert wrong in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert not Path("runs").exists()


def test_a_detached_run_goes_on_in_the_background(run, monkeypatch, zoo_of_tests):
    monkeypatch.setenv("PYTHONPATH", str(zoo_of_tests), prepend=os.pathsep)
    expected = run(models="zoo_of_tests:classifier")
    done = run("--detach", models="zoo_of_tests:classifier")
    assert done.code == 0
    pid, log = re.search(r"as process (\d+)\. Its output: (.+)", done.out).groups()
    assert f"kill {pid}" in done.out
    end = time.monotonic() + 60
    while "next" not in Path(log).read_text():
        assert time.monotonic() < end
        time.sleep(0.05)
    assert expected.out.split("───")[-1].split("\n\n")[0] in Path(log).read_text()
    assert [path.name for path in Path("runs/works").iterdir()] == [Path(log).name]
