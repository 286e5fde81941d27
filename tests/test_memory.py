"""What a model said is kept as long as model and images are the same."""

import pytest
import torch

from jembench.memory import Memory

VALUES = {"logits": torch.arange(6.0).reshape(2, 3), "energy": torch.tensor([1.0, -2.0])}


@pytest.fixture
def weights(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"weights")
    return path


def test_what_was_kept_is_recalled_by_another_process(tmp_path, weights):
    Memory(tmp_path / "readings", "fit", [weights]).keep("abc", VALUES)
    found = Memory(tmp_path / "readings", "fit", [weights]).recall("abc")
    assert found.keys() == VALUES.keys()
    assert all(torch.equal(found[name], value) for name, value in VALUES.items())


def test_other_images_fits_and_weights_are_not_known(tmp_path, weights):
    memory = Memory(tmp_path / "readings", "fit", [weights])
    memory.keep("abc", VALUES)
    assert memory.recall("abd") == {}
    assert Memory(tmp_path / "readings", "other", [weights]).recall("abc") == {}
    weights.write_bytes(b"Weights")
    assert Memory(tmp_path / "readings", "fit", [weights]).recall("abc") == {}


@pytest.mark.parametrize("content", [b"", b"torn", b'\x08\0\0\0\0\0\0\0{"a":1}'])
def test_a_damaged_file_is_as_good_as_none(tmp_path, weights, content):
    memory = Memory(tmp_path / "readings", "fit", [weights])
    memory.keep("abc", VALUES)
    (file,) = (tmp_path / "readings").rglob("*.safetensors")
    file.write_bytes(content)
    assert memory.recall("abc") == {}
    memory.keep("abc", VALUES)
    assert memory.recall("abc").keys() == VALUES.keys()
