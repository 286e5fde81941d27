from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from jembench.catalog.registry import Resolved
from jembench.errors import JembenchError, PluginError
from jembench.experiment.crossing import make_plan
from jembench.experiment.suite import Run, Suite
from jembench.models import settings
from jembench.running import driver
from jembench.running.events import Events
from jembench.running.fits import FitWork
from jembench.running.local import LocalExecutor
from jembench.store import checkpoint
from jembench.store.store import Store

WEIGHTS = "model.safetensors"


def test_not_applicable_is_known_before_training_and_not_tried_again(
    plan, store, carry_out, outcomes
):
    whole = plan("classifier", "brightness")
    assert carry_out(whole, store) == ["done classifier 0"]  # neither trained nor measured
    (outcome,) = outcomes(whole, store).values()
    assert (outcome.status, outcome.reason) == (
        "na",
        "needs samples, which the model does not give",
    )
    assert not (store.root / "fits").exists()
    assert carry_out(whole, store) == []


def test_a_metric_that_raises_fails_its_cell_alone_and_is_tried_again(
    plan, store, carry_out, outcomes
):
    whole = plan("jem", "score raises energy")
    events = carry_out(whole, store)
    found = outcomes(whole, store)
    failed = found["jem", 0, "raises"]
    assert (failed.status, failed.reason) == ("failed", "ZeroDivisionError: a metric's own bug")
    assert "in _raises" in failed.traceback
    assert found["jem", 0, "score"].status == found["jem", 0, "energy"].status == "ok"
    assert events[-1] == "done jem 0"
    assert carry_out(whole, store) == ["measure raises", "done jem 0"]


def test_what_is_missing_is_tried_again_next_time(
    zoo, plan, store, monkeypatch, carry_out, outcomes
):
    whole = plan("jem", "unavailable score")
    carry_out(whole, store)
    outcome = outcomes(whole, store)["jem", 0, "unavailable"]
    assert (outcome.status, outcome.reason) == ("na", "The weights are missing: fetch them.")
    monkeypatch.setattr(zoo, "_unavailable", zoo._score)
    assert carry_out(whole, store) == ["measure unavailable", "done jem 0"]
    assert outcomes(whole, store)["jem", 0, "unavailable"].status == "ok"


def test_a_model_that_diverges_fails_all_its_cells_and_no_other_model(
    plan, store, carry_out, outcomes
):
    whole = plan("diverging classifier", "score energy brightness")
    carry_out(whole, store)
    found = outcomes(whole, store)
    for metric in ("score", "energy"):
        failed = found["diverging", 0, metric]
        assert failed.status == "failed"
        assert failed.reason.startswith(
            "Diverged: Training diverged at iteration 3 (loss was inf), and no remedy is left."
        )
    assert found["diverging", 0, "brightness"].status == "na"
    record = store.read_fit(whole.fits[0].key)
    assert record.status == "failed"
    assert record.reason.startswith(
        "Training diverged at iteration 3 (loss was inf), and no remedy is left. It had been "
        "repaired at iteration 3 (loss was inf): it went back to iteration 0 with the remedy "
        "seed; at iteration 3 (loss was inf): it went back to iteration 0 with the remedy rate"
    )
    assert found["classifier", 0, "score"].status == "ok"
    assert "train diverging 0" in carry_out(whole, store)


def test_a_model_that_was_mended_says_so_in_its_record_and_beside_every_number(
    plan, store, carry_out, outcomes
):
    """Iteration 14 breaks twice: the 14th in all and, once more from 9 on, the 20th."""
    whole = plan("shaky classifier", "score")
    events = carry_out(whole, store)
    what = [
        "at iteration 15 (loss was nan): it went back to iteration 9 with the remedy seed",
        "at iteration 15 (loss was nan): it went back to iteration 0 with the remedy steps",
    ]
    told = [f"training diverged and was repaired {each} of shaky" for each in what]
    assert [event for event in events if event.startswith("training diverged")] == told
    assert {outcome.status for outcome in outcomes(whole, store).values()} == {"ok"}
    mended, healthy = whole.fits
    assert list(store.read_fit(mended.key).interventions) == what
    assert list(store.read_fit(healthy.key).interventions) == []
    by_model = {cell.fit.model: cell.provenance for cell in store.cells()}
    shaky, well = by_model["zoo_of_tests:shaky"], by_model["zoo_of_tests:classifier"]
    assert (shaky["interventions"], well["interventions"]) == (what, [])
    assert shaky["stability"]["diverged_at"] == 15
    assert shaky["stability"]["remedies"] == ["seed", "steps"]
    assert shaky["stability"]["ended_with"].endswith(" sampling steps")
    assert well["stability"] is None  # a classifier's loss has no energies to judge


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"torn", "is damaged (it has no header of safetensors)"),
        (None, "is not the file that the training of "),
    ],
)
def test_damaged_weights_fail_the_cells_of_their_fit_alone_and_are_kept(
    plan, store, content, reason, carry_out, outcomes, folder
):
    carry_out(plan("classifier"), store)
    path = folder(plan("classifier"), store) / WEIGHTS
    if content is None:
        checkpoint.write(path, {"net.1.weight": torch.zeros(5, 16), "net.1.bias": torch.zeros(3)})
    else:
        path.write_bytes(content)
    before = path.read_bytes()
    whole = plan("classifier jem", "energy")
    carry_out(whole, store)
    damaged, healthy = outcomes(whole, store).values()
    assert damaged.status == "failed"
    assert damaged.reason.startswith("CheckpointError: ")
    assert reason in damaged.reason
    assert healthy.status == "ok"
    assert path.read_bytes() == before
    path.unlink()  # as the message says
    carry_out(whole, store)
    assert {outcome.status for outcome in outcomes(whole, store).values()} == {"ok"}


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (
            "untrainable",
            "The model zoo_of_tests:untrainable cannot be trained: LogitModel lacks `chains` and "
            "`training_loss` (jembench.interfaces.Trainable). If it has been trained elsewhere, "
            "mark its factory: @jembench.plugin.pretrained.",
        ),
        (
            "needs_more",
            "The model zoo_of_tests:needs_more cannot be made for shades: ModuleNotFoundError: No "
            "module named 'timm'. Its factory is zoo_of_tests:needs_more; `jembench --debug` "
            "shows where it fails.",
        ),
        (
            "no_module",
            "The model zoo_of_tests:no_module is of type object; it must be a torch.nn.Module.",
        ),
        (
            "exits",
            "zoo_of_tests:exits ends the program (SystemExit: 3). Raise an error that says what "
            "is wrong.",
        ),
        (
            "frozen",
            "The model zoo_of_tests:frozen cannot be trained: none of its parameters requires a "
            "gradient (requires_grad). If it has been trained elsewhere, mark its factory: "
            "@jembench.plugin.pretrained.",
        ),
        (
            "confused",
            "The model zoo_of_tests:confused asks for 'sideways' chains; it must be none or "
            "marginal or conditional.",
        ),
    ],
)
def test_a_model_that_cannot_be_trained_stops_the_run_before_anything_is_trained(
    plan, store, model, text, carry_out
):
    with pytest.raises(PluginError) as caught:
        carry_out(plan(f"classifier {model}"), store)
    assert str(caught.value) == text
    assert not (store.root / "fits").exists()


def test_a_model_that_ends_the_program_when_it_is_loaded_fails_alone(
    plan, store, carry_out, outcomes, monkeypatch
):
    load = FitWork._load

    def exits(work, folder):
        if work.fit.key.model.endswith("jem"):
            raise SystemExit(0)
        return load(work, folder)

    monkeypatch.setattr(FitWork, "_load", exits)
    whole = plan("jem classifier")
    carry_out(whole, store)
    found = {model: outcome for (model, *_), outcome in outcomes(whole, store).items()}
    assert found["jem"].reason.endswith(
        "jem ends the program (SystemExit: 0). Raise an error that says what is wrong."
    )
    assert found["classifier"].status == "ok"


def test_a_metric_that_cannot_be_made_fails_alone(plan, store, carry_out, outcomes, monkeypatch):
    make = Resolved.make

    def exits(component, *arguments):
        if component.name.endswith("brightness"):
            raise SystemExit(0)
        return make(component, *arguments)

    whole = plan("jem", "score brightness")
    monkeypatch.setattr(Resolved, "make", exits)
    carry_out(whole, store)
    found = {metric: outcome for (*_, metric), outcome in outcomes(whole, store).items()}
    assert found["brightness"].reason.startswith(
        "PluginError: The metric zoo_of_tests:brightness ends the program"
    )
    assert found["score"].status == "ok"


@pytest.mark.filterwarnings("ignore:.* has 30 training and 30 test images:jembench.errors.Remark")
@pytest.mark.parametrize("broken", ["own/test/dark/0.png", "others/test/dark/0.png"])
def test_a_broken_image_is_known_before_anything_is_trained(
    plan, store, recorder, tmp_path, broken, monkeypatch
):
    monkeypatch.setenv("JEMBENCH_IMAGES_GIB", "1")  # images in memory are all read at the start
    for folder in ("own", "others"):
        for split in ("train", "test"):
            for shade, name in enumerate(("dark", "light", "white")):
                (tmp_path / folder / split / name).mkdir(parents=True)
                for n in range(10):
                    level = 100 * shade + n + (20 if split == "test" else 0)
                    pixels = np.full((4, 4), level, dtype=np.uint8)
                    Image.fromarray(pixels).save(tmp_path / folder / split / name / f"{n}.png")
    (tmp_path / broken).write_bytes(b"\x89PNG\r\n\x1a\n cut short")
    data = (f"imagefolder:root={tmp_path}/own,grey=true,name=shades",)
    metrics = ("accuracy", f"ood:set=imagefolder:root={tmp_path}/others")
    suite = Suite(
        name="zoo",
        title="",
        datasets=data,
        runs=(Run(models=("zoo_of_tests:jem",), metrics=metrics),),
    )
    whole = make_plan(suite, recipe=str(Path(__file__).parents[1] / "zoo" / "tiny.toml"))
    with pytest.raises(JembenchError, match=r"0\.png cannot be decoded as an image"):
        driver.run_units(whole, store, LocalExecutor(), Events(recorder, store))
    assert recorder.iterations == []


@pytest.fixture
def reset():
    """In the end all settings are as before."""
    before = [setting.read() for setting in settings.SETTINGS]
    yield
    settings._write(before)


@pytest.mark.parametrize(
    ("where", "setting"),
    [
        ("factory", "the grad mode"),
        ("factory", "the default dtype"),
        ("training", "the current folder"),
        ("training", "the number of threads"),
        ("metric", "the default device"),
    ],
)
def test_a_setting_that_a_plugin_leaves_changed_changes_no_other_result(
    zoo, plan, store, tmp_path, setting, where, carry_out, values, reset
):
    alone = Store(tmp_path / "alone")
    carry_out(plan("classifier", "score energy"), alone)
    which = f"setting={list(zoo.LEFT).index(setting)}"
    culprit = {
        "factory": f"leaving:{which}",
        "training": f"leaving:{which},trained=true",
        "metric": "jem",
    }[where]
    first = plan(culprit, f"leaves:{which} score" if where == "metric" else "score")
    then = plan("classifier", "score energy")
    events = carry_out(first, store) + carry_out(then, store)
    expected = values(plan("classifier", "score energy"), alone)
    assert len(expected) == 2
    assert values(then, store) == expected
    said = [event for event in events if event.startswith("trouble")]
    model = first.fits[0].key.model
    subject = {
        "factory": "The factory",
        "training": "The training",
        "metric": f"The metric {first.cells[0].metric}",
    }
    (text,) = {event.partition(": ")[2] for event in said}
    assert text.startswith(f"{subject[where]} of {model} left {setting} changed.")
    record = (
        store.read_fit(first.fits[0].key)
        if where == "training"
        else store.read_cell(first.cells[0])
    )
    assert record.provenance["changed_settings"] == [text]
    assert "changed_settings" not in store.read_cell(then.cells[0]).provenance
