"""Settings that all tests share."""

from pathlib import Path

import hypothesis
import pytest
import torch

hypothesis.settings.register_profile("jembench", deadline=None)  # a busy machine is not a bug
hypothesis.settings.load_profile("jembench")
torch.set_num_threads(1)  # tests run side by side; the numbers do not depend on it


@pytest.fixture
def zoo_of_tests(monkeypatch):
    """The folder of ``zoo_of_tests.py``, which can be imported: models, metrics and a recipe ``tiny.toml``."""
    folder = Path(__file__).parent / "zoo"
    monkeypatch.syspath_prepend(folder)
    return folder
