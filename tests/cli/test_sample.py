from pathlib import Path

import pytest
from PIL import Image

from jembench.data.grid import LINE

SIDE = 32 + 2  # an enlarged image, and the gap beside it


@pytest.fixture
def sample(jembench, tiny):
    """``jembench sample`` with what takes a moment."""
    return lambda model, *arguments: jembench("sample", model, *tiny, *arguments)


def test_a_picture_of_the_chains_that_training_kept(sample):
    done = sample("zoo_of_tests:jem", "--output", "folder/mine.png")
    assert done.code == 0
    assert done.out == (
        "folder/mine.png: images of zoo_of_tests:jem on zoo_of_tests:data, recipe tiny, seed 0, "
        "from the chains that training kept, a row for each class\n"
    )
    with Image.open("folder/mine.png") as picture:
        picture.load()
        assert (picture.format, picture.mode) == ("PNG", "L")
        assert picture.size == (10 * SIDE + 2, 3 * SIDE + 2 + 2 * LINE)


def test_new_chains(sample):
    done = sample("zoo_of_tests:jem", "--steps", "5", "--output", "five.png")
    assert done.code == 0
    assert ", from new chains of 5 steps, " in done.out
    assert "training" in done.err
    for arguments in (["--output", "kept.png"], ["--steps", "5", "--output", "again.png"]):
        err = sample("zoo_of_tests:jem", *arguments).err
        assert (
            err
            == "drawing images of zoo_of_tests:jem on zoo_of_tests:data, recipe tiny, seed 0 ...\n"
        )
    assert (
        Path("five.png").read_bytes()
        == Path("again.png").read_bytes()
        != Path("kept.png").read_bytes()
    )


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("zoo_of_tests:painter_alone", "drawn directly, in no order"),
        ("zoo_of_tests:energy_alone:chains=marginal", "from new chains of 100 steps, in no order"),
    ],
)
def test_a_model_that_was_trained_elsewhere(sample, model, told):
    done = sample(model)
    assert done.code == 0, done.err
    assert done.out.endswith(f", recipe pretrained, seed 0, {told}\n")
    assert Path("samples.png").exists()


def test_a_sampler_draws_from_any_energy(sample):
    done = sample("zoo_of_tests:classifier", "--sampler", "sgld:steps=3,bounded=true")
    assert done.code == 0, done.err
    assert ", from new chains of sgld:bounded=true,steps=3, a row for each class" in done.out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ["zoo_of_tests:classifier"],
            "generates no images of its own. Choose a model that does, or draw from its",
        ),
        (
            ["zoo_of_tests:painter_alone", "--sampler", "sgld"],
            "draws its images directly, without a chain.",
        ),
        (["zoo_of_tests:jem", "--sampler", "sgdl"], "no sampler named 'sgdl'"),
        (
            ["zoo_of_tests:painter", "--steps", "5"],
            "zoo_of_tests:painter draws its images directly, without a chain.",
        ),
        (["zoo_of_tests:jem", "--steps", "0"], "0 is not in the range x>=1"),
        (
            ["zoo_of_tests:jem", "--output", "thesis.tex"],
            "--output is thesis.tex; its name must end in .png.",
        ),
        (["jemm"], "Nearest: jem, jem-tamed, timm."),
    ],
)
def test_what_cannot_be_is_told_before_anything_is_trained(sample, arguments, text):
    done = sample(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("Error: ")
    assert done.err.count("\n") == 1
    assert text in done.err
    assert list(Path.cwd().iterdir()) == []
