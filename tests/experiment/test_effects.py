"""Overrides without an effect on the training are refused; the others determine the number of
iterations.
"""

import re

import pytest

from jembench.errors import SpecError
from jembench.experiment import effects
from jembench.experiment import recipe as recipes
from jembench.experiment.plan import plan_fit

BY_EPOCHS, BY_LEAST = 100, 4
"""Iterations in an epoch for which the epochs of recipe small-images, 50, or else its least number,
400, decide.
"""


@pytest.mark.parametrize(
    ("settings", "per_epoch", "expected"),
    [
        ([], BY_EPOCHS, 5000),
        ([], BY_LEAST, 400),
        (["epochs=5"], BY_EPOCHS, 500),
        (["epochs=101"], BY_LEAST, 404),
        (["epochs=5", "least_iterations=0"], BY_LEAST, 20),
        # the file's own values are no overrides
        (["epochs=50", "least_iterations=400"], BY_LEAST, 400),
        (["least_iterations=600"], BY_LEAST, 600),
        (["least_iterations=0", "epochs=1e-6"], BY_LEAST, 1),
    ],
)
def test_the_number_of_iterations(settings, per_epoch, expected):
    assert effects.iterations(recipes.load("small-images", settings), per_epoch) == expected


@pytest.mark.parametrize(
    ("settings", "per_epoch", "expected"),
    [
        (
            ["epochs=5"],
            BY_LEAST,
            "epochs=5 has no effect on the training by recipe small-images: epochs=5 gives 20 "
            "iterations here, and least_iterations is 400. Set least_iterations=0 too, or epochs "
            "over 100.",
        ),
        (["epochs=100"], BY_LEAST, "epochs=100 has no effect"),
        (["epochs=5", "least_iterations=30"], BY_LEAST, "epochs=5 has no effect"),
        (["least_iterations=600"], BY_EPOCHS, "Set least_iterations=0, or over 5,000."),
    ],
)
def test_the_one_that_does_not_decide_is_refused(settings, per_epoch, expected):
    with pytest.raises(SpecError, match=re.escape(expected)):
        effects.iterations(recipes.load("small-images", settings), per_epoch)


@pytest.mark.parametrize(
    ("recipe", "inert", "instead"),
    [
        ("digits", "optimizer.momentum=0.5", "optimizer.name=sgd"),
        ("small-images", "optimizer.betas=[0.5,0.9]", "optimizer.name=adam"),
        ("digits", "optimizer.adaptive=false", "optimizer.sharpness=2"),
        ("digits", "schedule.decay=0.5", "schedule.decay_epochs=[9]"),
        ("digits", "schedule.decay_epochs=[9]", "schedule.decay=0.5"),
        ("digits", "data.stratified=true", "data.validation=50"),
        ("digits", "data.epoch=labelled", "data.shared=false"),
    ],
)
def test_a_field_that_the_rest_of_the_recipe_does_not_read_is_refused_when_it_is_planned(
    recipe, inert, instead
):
    with pytest.raises(
        SpecError,
        match=rf"^{re.escape(inert)} has no effect .* by recipe {recipe}: .* Set \S+( too)?\.$",
    ):
        plan_fit("jem", "digits", recipe, [inert])
    assert len(plan_fit("jem", "digits", recipe, [inert, instead]).recipe.overrides) == 2
