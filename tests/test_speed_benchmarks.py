"""The speed benchmarks run, and both sides of each do the same work. No time is looked at."""

import json
import math
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from scripts import importing

SPEED = Path(__file__).parent.parent / "benchmarks" / "speed"
TINY = "--net wrn-10-1 --batch 8 --steps 2 --repeats 1 --images 20 --scored 20 --attacked 2 --device cpu"
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


@pytest.mark.parametrize("what", [*CONTESTS, "guard"])
def test_a_finite_ratio_is_printed(rows, what):
    (row,) = rows(what)
    assert row["subject"] == what
    assert all(math.isfinite(number) and number > 0 for number in row["ratio"].values())
    if what in CONTESTS:
        assert_same_work(row["notes"])


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


def test_peak_memory_holds_the_replay_buffer_at_least(rows):
    (row,) = rows("memory")
    assert min(row["textbook"]["low"], row["ours"]["low"]) > 10_000 * 3 * 32 * 32 * 4
    assert row["ratio"]["median"] == pytest.approx(row["textbook"]["median"] / row["ours"]["median"])


def test_rates_are_shares_of_what_the_hardware_does(speed, rows, monkeypatch):
    for constant, small in {"SMALLEST": 256, "LARGEST": 256, "LONG_ENOUGH": 0.01}.items():
        monkeypatch.setattr(speed("rate"), constant, small)
    sampling, jem = rows("rate")
    for row in (sampling, jem):
        assert all(0 < row[side]["median"] < math.inf for side in ("textbook", "ours"))
    assert jem["notes"]["GFLOP"] > 2 * sampling["notes"]["GFLOP"]


def test_commands_are_timed_on_stores_of_many_cells(speed, rows, monkeypatch):
    tiny = speed("stores").Size(2, 1, 1)
    for name in ("SMALL", "LARGE"):
        monkeypatch.setattr(speed("stores"), name, tiny)
    found = rows("stores")
    commands = ["run many --dry-run", "run many", "report", "report hybrid"]
    assert [row["per"] for row in found] == [f"{command}, 50 cells" for command in commands]
    assert all(row["ours"]["low"] > 0 and row["notes"]["CPU s"] > 0 for row in found)


def test_a_store_of_many_cells_is_finished(speed, tmp_path, monkeypatch):
    """What is timed is the same run again: nothing of it is pending, and nothing is listed."""
    stores = speed("stores")
    found = stores.Prepared(tmp_path, stores.Size(2, 1, 1))
    stores.install(tmp_path, found.size)
    found.python(stores.__file__, str(found.store))
    files = {path: path.stat().st_mtime_ns for path in found.store.rglob("*") if path.is_file()}
    assert found.bare() > 0
    watch = "import sys; from jembench.cli.main import main; code = main(sys.argv[1:]); "
    found.python("-c", f"{watch} sys.exit(code or 'torch' in sys.modules)", "run", "many")
    changed = {path for path in found.store.rglob("*") if path.is_file() and files.get(path) != path.stat().st_mtime_ns}
    assert changed == set()


def test_operations_are_those_of_our_iteration_too(speed):
    setting = speed("contests").Setting(
        net="wrn-10-1", batch=4, steps=2, images=4, scored=4, attacked=1, workers=0, device="cpu", precision="auto"
    )
    model = setting.model("jem")
    needed = speed("rate").work_of(setting, model.net)
    trainer = setting.trainer(model)
    trainer.iterate()  # shows which weights are copied, in a pass of two images
    assert speed("rate").operations(trainer.iterate) == needed.iteration


def test_a_table_is_printed(speed):
    result = CliRunner().invoke(speed("run").main, ["sampling", *TINY.split()])
    assert result.exit_code == 0
    assert "wrn-10-1, batch 8 of 3x32x32, 2 sampling steps" in result.stdout
    assert "SGLD step" in result.stdout


def test_operations_and_waits_are_counted(speed, monkeypatch):
    launches = speed("launches")
    monkeypatch.setattr(launches, "IMAGES", 100)
    with launches.fake_gpu() as device:
        step, attacked = launches.sampling("wrn-10-1", device), launches.attack("wrn-10-1", device, refine=0)
        short = ("paper", "wrn-10-1", device, "chains.sampler=pcd:steps=2,buffer=8")
        plain, graph = (launches.iteration(*short, captured=captured) for captured in (False, True))
    assert step == launches.Count(operations=57, waits=0)
    assert plain.waits == graph.waits == 0
    assert plain.operations - graph.operations == 2 * 57 - 5  # the graph, two copies to it and two from it
    assert attacked.waits == 0.2
