"""Settings that all tests share, those of the plugins too."""

import random

import hypothesis
import numpy as np
import pytest
import torch

hypothesis.settings.register_profile("jembench", deadline=None)  # a busy machine is not a bug
hypothesis.settings.load_profile("jembench")
torch.set_num_threads(1)  # tests run side by side; the numbers do not depend on it


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """What a test draws from a global generator does not depend on the tests that its process ran before."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - the global generator is what is meant
    torch.manual_seed(0)
