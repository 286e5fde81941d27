"""Settings that all tests share."""

import hypothesis
import torch

hypothesis.settings.register_profile("jembench", deadline=None)  # a busy machine is not a bug
hypothesis.settings.load_profile("jembench")
torch.set_num_threads(1)  # tests run side by side; the numbers do not depend on it
