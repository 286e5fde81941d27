from __future__ import annotations

import subprocess
import sys

from jembench.catalog import discovery


def test_the_classes_of_metrics_import_neither_torch_nor_numpy():
    names = [
        component.name
        for component in discovery.components("metrics")
        if component.distribution == "jembench"
    ]
    modules = {discovery.find("metrics", name).module for name in names}
    modules |= {"jembench.metrics.ood_scores", "jembench.metrics.features"}
    heavy = {"torch", "numpy", "scipy", "torch_fidelity"}
    code = f"import sys, {', '.join(modules)}; sys.exit(bool({heavy} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
