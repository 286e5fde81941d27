"""CelebA from files made here: which are read, how they are cropped, and what is said where they
are not in order.
"""

import numpy as np
import pytest
from PIL import Image

from jembench.data.factories import celeba
from jembench.errors import Unavailable


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def root(tmp_path):
    """Six faces of CelebA's size, each of one grey: two of training, one of validation, three of
    test.
    """
    faces = tmp_path / "celeba" / "img_align_celeba"
    faces.mkdir(parents=True)
    lines = []
    for number, part in enumerate((0, 2, 1, 2, 0, 2)):
        name = f"{number + 1:06}.jpg"
        Image.fromarray(np.full((218, 178, 3), 40 * number, np.uint8)).save(
            faces / name, quality=100
        )
        lines.append(f"{name} {part}")
    (tmp_path / "celeba" / "list_eval_partition.txt").write_text("\n".join(lines) + "\n")
    return tmp_path


def levels(split):
    return split.images[:].flatten(1).float().mean(1).round().tolist()


def test_the_parts_are_those_of_the_list(root):
    data = celeba(root=str(root))
    assert (data.spec.name, data.spec.shape, data.spec.num_classes) == ("celeba", (3, 32, 32), 0)
    assert levels(data.split("train")) == [0, 160]
    assert levels(data.split("test")) == [40, 120, 200]
    assert data.split("test").labels is None


def test_the_folder_itself_may_be_named(root):
    assert levels(celeba(root=str(root / "celeba"), size=8).split("train")) == [0, 160]


def test_the_central_square_is_kept(root):
    """Rows 20 to 197 of 218: what is above and below is cut off."""
    pixels = np.zeros((218, 178, 3), np.uint8)
    pixels[20:198] = 200
    Image.fromarray(pixels).save(root / "celeba" / "img_align_celeba" / "000001.jpg", quality=100)
    image = celeba(root=str(root)).split("train").images[0].float()
    assert (image - 200).abs().max() <= 3


def test_what_is_missing_is_named_with_where_to_get_it(root, tmp_path):
    with pytest.raises(
        Unavailable,
        match=r"img_align_celeba and list_eval_partition.txt not found .* https://mmlab",
    ):
        celeba(root=str(tmp_path / "elsewhere"))
    (root / "celeba" / "img_align_celeba" / "000004.jpg").unlink()
    with pytest.raises(Unavailable, match=r"1 of the images .* the first of them 000004.jpg"):
        celeba(root=str(root)).split("test")
