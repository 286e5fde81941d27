from __future__ import annotations

import subprocess
import sys

import pytest

from jembench.catalog import discovery, registry


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
    names = [one.name for one in discovery.components("metrics") if one.distribution == "jembench"]
    modules = {discovery.find("metrics", name).module for name in names}
    modules |= {"jembench.metrics.ood_scores", "jembench.metrics.features"}
    heavy = {"torch", "numpy", "scipy", "torch_fidelity"}
    code = f"import sys, {', '.join(modules)}; sys.exit(bool({heavy} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
