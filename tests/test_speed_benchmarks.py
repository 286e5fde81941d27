"""The speed benchmarks run, and both sides of each do the same work. No time is looked at."""

import json
import math
import os
import re
import sys
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from scripts import importing

SPEED = Path(__file__).parent.parent / "benchmarks" / "speed"
TINY = (
    "--net wrn-10-1 --batch 8 --steps 2 --repeats 1 --images 20 --scored 20 --attacked 2 --device "
    "cpu"
)
CONTESTS = ["sampling", "jem", "classifier", "evaluation", "gradient-norm", "scores", "bootstrap"]


@pytest.fixture(scope="module")
def speed():
    """Imports a script as ``python benchmarks/speed/run.py`` does."""
    with importing(SPEED) as imported:
        yield imported


@pytest.fixture
def rows(speed):
    def measure(*what):
        result = CliRunner().invoke(speed("run").main, [*what, *TINY.split(), "--format", "json"])
        assert result.exception is None, result.output
        (net,) = json.loads(result.stdout)["nets"]
        return net["rows"]

    with torch.random.fork_rng():  # the textbook draws from the global generator, as textbooks do
        yield measure


def test_the_search_for_the_smallest_eps_comes_as_near_as_foolboxs(rows, speed, monkeypatch):
    attacks = speed("attacks")
    for name, value in {"RESTARTS": 2, "STEPS": 5, "TOLERANCE": 0.05, "ITERATIONS": 20}.items():
        monkeypatch.setattr(attacks, name, value)
    (row,) = rows("attack")
    assert all(math.isfinite(number) and number > 0 for number in row["ratio"].values())
    (nearness,) = row["notes"].values()
    assert 0.8 < nearness < 1.1  # foolbox's restarts are others


@pytest.mark.parametrize("what", CONTESTS)
def test_a_finite_ratio_is_printed(rows, what):
    (row,) = rows(what)
    assert row["subject"] == what
    assert all(math.isfinite(number) and number > 0 for number in row["ratio"].values())
    assert_same_work(row["notes"])


def test_the_cost_of_a_command_by_two_programs(speed, monkeypatch):
    programs = [sys.executable, os.path.relpath(sys.executable)]
    monkeypatch.setattr(speed("rate"), "LARGEST", 16)
    monkeypatch.setattr(speed("rate"), "SMALLEST", 16)
    monkeypatch.setattr(speed("rate"), "LONG_ENOUGH", 0.001)
    busy = "for i in range(10**6): pass"
    options = [word for program in programs for word in ("-p", program)]
    command = [*options, "--turns", "2", "--", "-c", busy]
    result = CliRunner().invoke(speed("commands").main, command)
    assert result.exception is None, result.output
    lines = result.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines] == programs
    assert all(
        re.search(r"cpu \S+ \(.+\), wall \S+ \(.+\), products \S+ \(.+\)$", line) for line in lines
    )


def assert_same_work(agreement):
    """In bfloat16 a number has eight significant bits; evaluation is in float32 on both sides."""
    if "loss" in agreement:
        assert agreement["our loss"] == pytest.approx(agreement["loss"], rel=2**-8)
        assert agreement["lowest cosine"] > 0.99
    elif "cosine" in agreement:
        assert agreement["cosine"] > 0.99
    else:
        (difference,) = agreement.values()
        assert difference < 1e-4


def test_rates_are_shares_of_what_the_convolutions_reach_alone(rows):
    sampling, jem = rows("rate")
    for row in (sampling, jem):
        assert all(0 < row[side]["median"] < math.inf for side in ("textbook", "ours"))
    assert jem["notes"]["GFLOP"] > 2 * sampling["notes"]["GFLOP"]


@pytest.fixture
def setting(speed):
    return speed("contests").Setting(
        net="wrn-10-1",
        batch=4,
        steps=2,
        images=4,
        scored=4,
        attacked=1,
        workers=0,
        device="cpu",
        precision="auto",
    )


@pytest.mark.parametrize("part", ["step", "loss"])
def test_the_convolutions_alone_are_those_of_the_network(setting, speed, part):
    work = getattr(speed("rate").works_of(setting, setting.model("jem").net), part)
    alone = speed("rate").convolutions_of(
        work.carry_out, torch.bfloat16, torch.channels_last, setting.place
    )
    with speed("rate").OperationCounter() as counter:
        alone.compute()
    assert counter.count == alone.operations
    # of the linear layer, whose weights a step does not change
    products = {"step": 2, "loss": 9}[part]
    assert work.operations - alone.operations == products * 2 * setting.batch * 64 * 10
    for _, args in counter.convolutions:
        maps = [arg for arg in args if isinstance(arg, torch.Tensor) and arg.ndim == 4]
        assert all(tensor.dtype == torch.bfloat16 for tensor in maps)
        assert all(tensor.is_contiguous(memory_format=torch.channels_last) for tensor in maps)


def test_operations_are_those_of_our_iteration_too(setting, speed):
    model = setting.model("jem")
    needed = speed("rate").works_of(setting, model.net)
    trainer = setting.trainer(model)
    trainer.iterate()  # shows which weights are copied, in a pass of two images
    operations = setting.steps * needed.step.operations + needed.loss.operations
    assert speed("rate").operations(trainer.iterate) == operations


def test_a_table_is_printed(speed):
    result = CliRunner().invoke(speed("run").main, ["sampling", *TINY.split()])
    assert result.exit_code == 0
    assert "wrn-10-1, batch 8 of 3x32x32, 2 sampling steps" in result.stdout
    assert "SGLD step" in result.stdout
