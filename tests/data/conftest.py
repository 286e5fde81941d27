import pytest


@pytest.fixture(autouse=True, params=["in memory", "in parts"])
def limit_of_images(request, monkeypatch):
    """All tests of data run twice: no result depends on whether images are read in parts.

    A module in which the limit has no part, or which sets it itself, has its own fixture of this
    name.
    """
    monkeypatch.setenv("JEMBENCH_IMAGES_GIB", "0" if request.param == "in parts" else "1")
