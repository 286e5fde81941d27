from __future__ import annotations

import subprocess
import sys

import pytest

from jembench.catalog import discovery, registry

METRICS = [component.name for component in discovery.components("metrics") if component.distribution == "jembench"]
REQUIRED = {
    "accuracy": {"logits", "labels"},
    "adaptive-ece": {"logits", "labels"},
    "boundary": {"logits", "labels"},
    "brier": {"logits", "labels"},
    "chain-age": {"logits", "samples", "buffer"},
    "classwise-ece": {"logits", "labels"},
    "class-samples": {"logits", "samples"},
    "confident-samples": {"logits", "samples"},
    "debiased-ece": {"logits", "labels"},
    "distal": {"logits", "gradients"},
    "ece": {"logits", "labels"},
    "bits-per-dim": {"log_prob"},
    "energy-gap": {"energy", "samples"},
    "fid": {"samples"},
    "fid-infinity": {"samples"},
    "is": {"samples"},
    "iteration-time": {"training"},
    "kid": {"samples"},
    "log-density": {"energy"},
    "neighbours": {"samples"},
    "nll": {"logits", "labels"},
    "ood": {"energy"},
    "pgd": {"logits", "labels", "gradients"},
    "pointwise": {"logits", "labels"},
    "prc": {"samples"},
    "stability": {"training"},
    "transfer": {"logits", "labels", "energy", "samples", "chains"},
}
NEEDED = {"ood": "set=interp"}  # options without a default


def test_every_metric_is_registered():
    assert sorted(REQUIRED) == METRICS


@pytest.mark.parametrize("name", REQUIRED)
def test_a_metric_is_made_from_its_name_and_knows_what_it_needs(name):
    metric = registry.resolve("metrics", f"{name}:{NEEDED[name]}" if name in NEEDED else name).make()
    assert metric.name == name
    assert metric.requires == REQUIRED[name]


@pytest.mark.parametrize(
    "spec",
    [
        "ece:bins=15",
        "nll:scaling=temperature",
        "fid:features=inception:weights=/a/file.pth,reference=test",
        "is:splits=5",
    ],
)
def test_options_come_back_in_the_canonical_spec(spec):
    assert str(registry.resolve("metrics", spec)) == spec


@pytest.mark.parametrize("kind", ["metrics", "features"])
def test_every_factory_says_in_a_line_what_it_gives(kind):
    for component in discovery.components(kind):
        if component.distribution == "jembench":
            line = discovery.describe(discovery.load(component))
            assert line.endswith(".")
            assert len(line) > 20


def test_the_classes_of_metrics_import_neither_torch_nor_numpy():
    modules = {discovery.find("metrics", name).module for name in REQUIRED} | {"jembench.metrics.ood_scores"}
    heavy = {"torch", "numpy", "scipy", "torch_fidelity"}
    code = f"import sys, {', '.join(modules)}; sys.exit(bool({heavy} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
