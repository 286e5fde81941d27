import subprocess
import sys

import numpy as np
import pytest
import torch

from jembench.attacks import foolbox_bridge


def test_chance_is_seeded_within_and_as_it_was_afterwards():
    before = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    drawn = []

    def draw():
        with foolbox_bridge.seeded(3):
            drawn.append((torch.rand(2).tolist(), np.random.rand(2).tolist()))  # noqa: NPY002
            raise KeyError

    for _ in range(2):
        with pytest.raises(KeyError):
            draw()
    assert drawn[0] == drawn[1]
    assert torch.equal(torch.random.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()  # noqa: NPY002


def test_without_git_it_is_imported_all_the_same(tmp_path):
    """Foolbox's zoo wants git, and fails at import where there is none."""
    script = """
from jembench.attacks.foolbox_bridge import foolbox
print(foolbox().__name__)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], env={"PATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "foolbox\n"), done.stderr
