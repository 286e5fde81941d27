"""Models that were trained elsewhere: measured as they are, and kept like the others."""

import numpy as np
import pytest

from jembench.store import checkpoint

SHORT = ["chains.sampler=sgld:steps=4,step_size=0.1"]
CHAINS = "energy_alone:chains=marginal"


def test_nothing_is_trained(plan, store, carry_out, folder):
    whole = plan("energy_alone", "energy")
    assert carry_out(whole, store) == ["measure energy", "done energy_alone 0"]
    assert {path.name for path in folder(whole, store).iterdir()} == {
        *("fit.json", "model.safetensors", "sampler.safetensors")
    }
    record = store.read_fit(whole.fits[0].key)
    assert (record.key.recipe, record.status, record.iteration) == ("pretrained", "done", 0)
    assert (record.iteration_seconds, record.validation_accuracy) == ((), None)


def test_weights_that_have_changed_since_are_refused_and_nothing_is_lost(
    zoo, plan, store, monkeypatch, carry_out, outcomes, values, folder
):
    carry_out(plan("centred", "energy"), store)
    whole = plan("centred", "energy brightness")
    before, place = values(plan("centred", "energy"), store), folder(whole, store)
    kept = (place / "model.safetensors").read_bytes()
    with monkeypatch.context() as changed:
        changed.setattr(zoo, "CENTRE", 0.3)
        carry_out(whole, store)
    refused = outcomes(whole, store)["centred", 0, "brightness"]
    assert (refused.status, refused.reason) == (
        "failed",
        "CheckpointError: The weights of zoo_of_tests:centred have changed since they were first "
        "measured, and old and new results would be mixed. Give the new weights another name or "
        f"option, use another --store, or remove {place}.",
    )
    assert values(whole, store) == before
    assert (place / "model.safetensors").read_bytes() == kept
    assert carry_out(whole, store) == ["measure brightness", "done centred 0"]
    assert values(whole, store).items() > before.items()


@pytest.mark.parametrize(
    ("model", "measured"),
    [
        ("energy_alone", {"energy"}),
        ("density_alone", {"energy"}),
        ("painter_alone", {"brightness"}),
        (CHAINS, {"energy", "brightness"}),
    ],
)
def test_what_it_can_do_is_measured_and_the_rest_is_not_applicable(
    plan, store, model, measured, carry_out, outcomes
):
    whole = plan(model, "score energy brightness", settings=SHORT)
    carry_out(whole, store)
    found = {metric: outcome for (_, _, metric), outcome in outcomes(whole, store).items()}
    assert {metric for metric, outcome in found.items() if outcome.status == "ok"} == measured
    for metric in found.keys() - measured:
        assert found[metric].status == "na"
        assert ", which the model does not give" in found[metric].reason


def test_a_network_from_an_import_path_is_trained_by_cross_entropy(
    zoo, plan, store, carry_out, folder
):
    whole = plan("plain", "score", settings=["epochs=8"])
    assert carry_out(whole, store) == ["train plain 0", "measure score", "done plain 0"]
    images, labels = zoo.Shades().split("test")
    weights = checkpoint.read(folder(whole, store) / "model.safetensors")
    logits = images.flatten(1) / 255 * 2 - 1
    logits = logits @ weights["net.1.weight"].T + weights["net.1.bias"]
    (cell,) = whole.cells
    assert np.allclose(store.read_arrays(store.read_cell(cell))["file"], logits.numpy(), atol=1e-5)
    assert (logits.argmax(1) == labels).float().mean() > 0.6
