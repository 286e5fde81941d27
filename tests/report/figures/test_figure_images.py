"""Grids of images: every image where it belongs, enlarged pixel by pixel."""

import numpy as np
import pytest

from jembench.data.grid import sheet
from jembench.report.figures import density, images
from jembench.report.figures.images import Panel, grids


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    return {
        "images": rng.integers(0, 255, (5, 1, 8, 8), dtype=np.uint8),
        "shown": np.array([4, 0, 9, 7, 2]),
        "predicted": np.arange(10) % 3,
        "confidence": np.linspace(0.1, 1, 10),
    }


@pytest.mark.parametrize("channels", [1, 3])
def test_images_are_enlarged_pixel_by_pixel(channels):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, (3, channels, 8, 8), dtype=np.uint8)
    picture = sheet(images, np.array([[2, 0], [1, -1]]), gap=4)
    assert picture.shape == (132, 132, 3)
    places = {2: (0, 0), 0: (0, 68), 1: (68, 0)}
    for index, (top, left) in places.items():
        small = picture[top + 4 : top + 64 : 8, left + 4 : left + 64 : 8]
        assert (small == images[index].transpose(1, 2, 0)).all()
        block = picture[top : top + 8, left : left + 8]
        assert (block == block[0, 0]).all()
    assert (picture[68:, 68:] == 255).all()
    assert (picture[64:68] == 255).all()


def test_large_images_keep_their_size():
    images = np.zeros((1, 3, 70, 90), dtype=np.uint8)
    assert sheet(images, np.zeros((1, 1), dtype=int)).shape == (70, 90, 3)


def test_the_numbers_say_which_image_is_where(arrays):
    grid = np.array([[3, 1], [-1, 0]])
    rows = grids(
        "", arrays, arrays["predicted"], [Panel("all", grid, arrays["confidence"])], columns=1
    ).rows
    assert rows == [
        {
            "panel": "all",
            "row": 0,
            "column": 0,
            "class": 1,
            "index": 7,
            "score": pytest.approx(0.8),
        },
        {
            "panel": "all",
            "row": 0,
            "column": 1,
            "class": 0,
            "index": 0,
            "score": pytest.approx(0.1),
        },
        {
            "panel": "all",
            "row": 1,
            "column": 1,
            "class": 1,
            "index": 4,
            "score": pytest.approx(0.5),
        },
    ]


def test_a_row_of_samples_for_each_class_that_was_asked_for(arrays):
    arrays["grid"] = np.array([[0, 1], [2, 3]])
    drawing = images.class_grid("", arrays)
    assert [row["class"] for row in drawing.rows] == arrays["predicted"][
        arrays["shown"][:4]
    ].tolist()
    assert [label.get_text() for label in drawing.figure.axes[0].get_yticklabels()] == ["0", "1"]
    conditional = images.class_grid("", {**arrays, "labels": np.full(10, 7)})
    assert {row["class"] for row in conditional.rows} == {7}


def test_confident_samples_stand_in_a_square(arrays):
    rows = images.confident_grid("", arrays).rows
    assert [(row["row"], row["column"]) for row in rows] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    assert [row["index"] for row in rows] == arrays["shown"].tolist()
    assert [row["score"] for row in rows] == arrays["confidence"][arrays["shown"]].tolist()


def test_panels_of_the_density_have_the_score_that_chose_them(density_arrays):
    rows = density.extremes("", density_arrays).rows
    for row in rows:
        score = "confidence" if "p(y|x)" in row["panel"] else "log-px"
        assert row["score"] == density_arrays[score][row["index"]]
        assert row["class"] == density_arrays["labels"][row["index"]]
    assert len(rows) == 4 * 12
    panels = [row["panel"] for row in density.images_of_classes("", density_arrays).rows]
    assert set(panels) == {"highest log p(x)", "at random", "lowest log p(x)"}


def test_a_grid_that_names_a_picture_that_is_not_there_is_an_error(arrays):
    with pytest.raises(IndexError):
        sheet(arrays["images"], np.array([[5]]))
