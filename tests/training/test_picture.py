"""The picture of a fit's energies."""

import pytest
from PIL import Image

from jembench.training.picture import draw_energies


def history(attempts=1, scale=1.0):
    return [
        {
            "iteration": 20 * (window + 1),
            "attempt": attempt,
            "energy_data": -scale,
            "energy_samples": scale * window,
            "highest_sample": 2 * scale,
            "highest_start": 5 * scale,
        }
        for attempt in range(attempts)
        for window in range(4)
    ]


@pytest.mark.parametrize(("attempts", "scale"), [(1, 1.0), (3, 1e6)])
def test_it_is_a_png_of_a_size_to_look_at(tmp_path, attempts, scale):
    draw_energies(history(attempts, scale), "a title", tmp_path / "energies.png")
    with Image.open(tmp_path / "energies.png") as picture:
        assert picture.format == "PNG"
        assert min(picture.size) > 400


def test_another_history_is_another_picture(tmp_path):
    for name, scale in (("one", 1.0), ("other", 100.0)):
        draw_energies(history(scale=scale), "", tmp_path / name)
    assert (tmp_path / "one").read_bytes() != (tmp_path / "other").read_bytes()


def test_without_energies_there_is_nothing_to_draw(tmp_path):
    draw_energies([{"iteration": 20, "attempt": 0, "loss": 1.0}], "", tmp_path / "energies.png")
    assert not list(tmp_path.iterdir())
