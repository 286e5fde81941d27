"""TensorBoard, MLflow and Weights & Biases, really installed: what was written is read back by each
of them.

The tox environment ``plugins`` installs them. Nothing is sent anywhere.
"""

import contextlib
import struct
from pathlib import Path

import pytest

from jembench.catalog.spec import Spec
from jembench.interfaces import Event
from jembench.running.events import Events
from jembench.store.outcome import FitKey
from jembench.store.store import Store

KEY = FitKey(model=Spec("jem"), dataset=Spec("digits"), recipe="digits", seed=3, id="109dd351f5")
OUTCOME = {"status": "ok", "seconds": 2.0, "fid": 30.5, "fid/low": 29.0, "fid/high": 32.0}
DIVERGED = {"iteration": 30, "reason": "loss was nan", "returned_to": 20, "remedy": "seed"}


def window(done, attempt=0):
    values = {"iteration": done, "attempt": attempt, "loss": 1 / done, "energy_data": -float(done)}
    return Event(kind="window", done=done, total=40, values=values)


@pytest.fixture
def tracked(tmp_path):
    """A run that is killed after 30 iterations, and the next, which repeats some, diverges, and
    measures.
    """

    def tracked(spec):
        store = Store(tmp_path / "runs")
        store.fit_folder(KEY).mkdir(parents=True)
        first = [window(10), window(20), window(30)]
        second = [
            *first,
            Event(kind="diverged", values=DIVERGED, text="repaired at iteration 30 (loss was nan)"),
            window(30, 1),
            window(40, 1),
        ]
        measured = Event(kind="measured", metric="fid", done=40, values=OUTCOME)
        missing = Event(
            kind="measured", metric="ood", values={"status": "na", "seconds": 0.0}, text="no images"
        )
        for events in (first, [*second, measured, missing]):
            with Events(None, store, [spec]) as sent:
                for event in events:
                    sent.send(event, KEY)

    return tracked


LOSSES = [(10, pytest.approx(0.1)), (20, pytest.approx(0.05)), (30, pytest.approx(1 / 30))]
AGAIN = [(30, pytest.approx(1 / 30)), (40, pytest.approx(0.025))]


def by_step(points):
    """Return points in the order of their steps; one that was logged again has the same value."""
    found = {}
    for step, value in points:
        assert found.setdefault(step, value) == value
    return sorted(found.items())


def test_tensorboard(tracked, tmp_path):
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator"
    ).EventAccumulator
    tracked(f"tensorboard:folder={tmp_path / 'tb'}")
    first, second = (
        accumulator(str(folder)).Reload() for folder in sorted((tmp_path / "tb").iterdir())
    )

    def scalars(of, name):
        return by_step((each.step, each.value) for each in of.Scalars(name))

    assert scalars(first, "train/loss") == LOSSES
    assert scalars(second, "train/loss") == AGAIN
    assert [scalars(first, f"results/{label}") for label in ("fid", "fid/low")] == [
        [(40, 30.5)],
        [(40, 29)],
    ]
    texts = {
        tag: first.Tensors(tag)[0].tensor_proto.string_val[0].decode()
        for tag in first.Tags()["tensors"]
    }
    assert "repaired at iteration 30 (loss was nan)" in texts["divergence/text_summary"]
    assert texts["ood/text_summary"] == "na: no images"
    start = first.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    assert b"digits" in start


@pytest.mark.filterwarnings("default")  # its libraries have deprecations of their own
def test_mlflow(tracked, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    tracked("mlflow:uri=sqlite:///mlflow.db")
    client = mlflow.MlflowClient("sqlite:///mlflow.db")
    found = client.search_runs([client.get_experiment_by_name("jembench").experiment_id])
    runs = {run.data.params["attempt"]: run for run in found}
    assert len(found) == len(runs) == 2

    def metrics(attempt, name):
        return by_step(
            (each.step, each.value)
            for each in client.get_metric_history(runs[attempt].info.run_id, name)
        )

    assert metrics("0", "train/loss") == LOSSES
    assert metrics("1", "train/loss") == AGAIN
    assert metrics("0", "results/fid/low") == [(40, 29.0)]
    assert runs["0"].info.status == "FINISHED"
    assert runs["0"].data.params["model"] == "jem"
    kept = [each.path for each in client.list_artifacts(runs["0"].info.run_id)]
    assert sorted(kept) == ["divergence-30.txt", "ood-0.txt"]


@pytest.mark.filterwarnings("default")
def test_weights_and_biases_offline(tracked, tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    for name, value in {"MODE": "offline", "CACHE_DIR": str(tmp_path), "SILENT": "true"}.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    tracked(f"wandb:folder={tmp_path}")
    wandb.teardown()  # its process writes a moment later
    losses, summary = {}, {}
    for path in sorted(tmp_path.glob("wandb/offline-run-*/*.wandb")):
        for record in records(path):
            names = {
                item.nested_key[0] if item.nested_key else item.key: item
                for item in record.history.item
            }
            if "train/loss" in names:
                step = int(names["_step"].value_json)
                losses.setdefault(path.stem, []).append(
                    (step, float(names["train/loss"].value_json))
                )
            summary |= {
                "/".join(i.nested_key) or i.key: i.value_json for i in record.summary.update
            }
    assert {run: by_step(points) for run, points in losses.items()} == {
        "run-109dd351f5-0": LOSSES,
        "run-109dd351f5-1": AGAIN,
    }
    assert float(summary["results/fid/high"]) == 32
    assert "repaired at iteration 30" in summary["divergence/30"]


def records(path: Path):
    """The records of an offline run: a log as LevelDB writes it, of protocol buffers, after a
    header of 7 bytes.
    """
    from wandb.proto import wandb_internal_pb2

    content, place, parts = path.read_bytes(), 7, b""
    while place + 7 <= len(content):
        if (left := 32768 - place % 32768) < 7:
            place += left
            continue
        _, length, kind = struct.unpack("<IHB", content[place : place + 7])
        parts += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or its last part
            record = wandb_internal_pb2.Record()
            with contextlib.suppress(Exception):
                record.ParseFromString(parts)
            yield record
            parts = b""
