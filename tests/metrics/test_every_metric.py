"""Every metric, on a GPU that is not there, where no device may be mixed up, and of a model that
diverged.

The conformance kit checks first-party metrics beside: reproducible, rescored from their arrays, one
protocol a number.
"""

import dataclasses

import pytest
import torch
from fake_gpu import GPU, fake_gpu

from jembench.catalog import discovery, registry
from jembench.errors import SpecError
from jembench.metrics import features
from jembench.running.caches import FeatureBank
from jembench.running.measure import measure
from jembench.store.store import Store
from jembench.testing import stage

QUICK = "budget=quick,images=2"
ATTACKS = [
    f"pgd:{QUICK},steps=2,restarts=1",
    f"pgd:{QUICK},steps=2,restarts=2,norm=l2,eps=0.5",
    f"pgd:{QUICK},steps=1,restarts=1,refine=1,eot=2,eps=0.1",
    f"pgd:{QUICK},steps=1,restarts=1,refine=1,eot=2,eps=0.1,grad=bpda",
    f"boundary:{QUICK},queries=10",
    f"boundary:{QUICK},queries=10,refine=1,eot=1",
    "autoattack:budget=quick,images=1,eps=1",
    f"transfer:{QUICK},steps=2,restarts=1,refine=1,eot=1",
    "distal:budget=quick,images=2,steps=2",
    "pointwise:budget=quick,images=2,queries=20",
    "gradient-checks:budget=quick,images=1,steps=4,restarts=1,queries=1",
    "certified:budget=quick,images=1,copies=20",
]
OTHERS = [
    "accuracy",
    "adaptive-ece",
    "bits-per-dim",
    "brier:scaling=temperature",
    "chain-age",
    "chain-drift:steps=1",
    "class-offset",
    "cost",
    "classwise-ece",
    "class-samples",
    "confident-samples",
    "debiased-ece",
    "density-coverage",
    "ece",
    "energy-gap",
    "fid:source=fresh,steps=2",
    "is",
    "iteration-time",
    "kid:subset_size=20",
    "log-density",
    "log-density:source=kept",
    "log-z:chains=2,leapfrog=1,temperatures=2",
    "memorisation",
    "neighbours",
    "nll",
    "ood:set=interp,score=grad-norm",
    "ood:set=interp,score=log-px-given-class",
    "ood:set=interp,score=refinement",
    "prc",
    "selective",
    "shift:set=corrupted:by=fog",
]


@pytest.fixture
def evaluation(monkeypatch, tmp_path):
    evaluation = stage.trained()
    monkeypatch.setitem(features.RECIPE, "iterations", 2)
    few = property(lambda _: 5, lambda *_: None)
    monkeypatch.setattr("pyautoattack.autopgd_base.APGDAttack.n_iter", few, raising=False)
    monkeypatch.setattr("jembench_density.annealing.PILOT", 3)
    with fake_gpu():
        evaluation.model.to(GPU)
        bank = FeatureBank(evaluation.dataset, Store(tmp_path), GPU)
        yield dataclasses.replace(evaluation, limit=100, device=GPU, bank=bank).evaluation()


@pytest.mark.parametrize("spec", [*ATTACKS, *OTHERS])
def test_a_metric_mixes_up_no_device_and_its_values_lie_in_their_intervals(evaluation, spec):
    outcome, _ = measure(registry.resolve("metrics", spec).make(), evaluation)
    assert outcome.status == "ok", outcome.traceback or outcome.reason
    assert outcome.protocol.startswith(f"{spec.partition(':')[0]}:")
    assert ",data=" in outcome.protocol.replace(":data=", ",data=")
    for value in outcome.values.values():
        assert value.low is None or value.low <= value.value <= value.high
        assert value.n > 0


@pytest.mark.parametrize("name", sorted({spec.partition(":")[0] for spec in (*ATTACKS, *OTHERS)}))
def test_fewer_than_no_resamples_are_refused(name):
    needed = {"ood": "set=interp,", "shift": "set=interp,", "autoattack": "eps=8/255,"}.get(
        name, ""
    )
    with pytest.raises(SpecError, match=f"resamples of {name} is -1; it must be at least 0"):
        registry.resolve("metrics", f"{name}:{needed}resamples=-1").make()


def test_every_metric_is_there():
    # the record of training alone; the features of fid, of more images; images of known density, of
    # digits alone attacks, which the plugin's own tests run
    apart = {
        "attacked",
        "ood-attacked",
        "stability",
        "fid-infinity",
        "density-error",
        "ood-group",
        "energy-shift",
    }
    here = apart | {spec.partition(":")[0] for spec in (*ATTACKS, *OTHERS)}
    shipped = (
        "jembench",
        "jembench-density",
        "jembench-energy-ood",
        "jembench-generation",
        "jembench-robustness",
    )
    assert here == {
        component.name
        for component in discovery.components("metrics")
        if component.distribution in shipped
    }


@pytest.fixture(scope="module")
def diverged(tmp_path_factory):
    evaluation = stage.trained()
    with torch.no_grad():
        for weights in evaluation.model.parameters():
            weights.fill_(torch.nan)
    state = evaluation.sampler.state_dict()
    wild = {
        key: torch.full_like(kept, torch.nan)
        for key, kept in state.items()
        if kept.is_floating_point()
    }
    evaluation.sampler.load_state_dict(state | wild)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(features.RECIPE, "iterations", 2)
        bank = FeatureBank(
            evaluation.dataset, Store(tmp_path_factory.mktemp("features")), evaluation.device
        )
        yield dataclasses.replace(evaluation, limit=100, bank=bank).evaluation()


# it reads times alone
@pytest.mark.parametrize("spec", sorted({*ATTACKS, *OTHERS, "fid"} - {"iteration-time"}))
def test_a_diverged_model_is_called_so(diverged, spec):
    outcome, _ = measure(registry.resolve("metrics", spec).make(), diverged)
    assert (outcome.status, outcome.reason.partition(":")[0]) == ("failed", "Diverged")
