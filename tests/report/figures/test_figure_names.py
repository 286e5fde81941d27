"""Names in figures and of their files: short, and longer only where two would be equal."""

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from jembench import drawing
from jembench.catalog.spec import Spec
from jembench.experiment.names import NO_NAMES, DisplayNames
from jembench.report.figures import base
from jembench.store.outcome import FitKey

MODELS = (
    "jem",
    "jem:net=a b",
    "jem:net=a/b",
    "jem:net=a-b",
    f"jem:net={'x' * 300}",
    f"jem:net={'x' * 301}",
    "baseline",
)


def fit(model="jem", dataset="digits", recipe="digits", seed=0):
    return FitKey(model=Spec(model), dataset=Spec(dataset), recipe=recipe, seed=seed, id="0")


def stems(*groups):
    planned = (base.planned("ood", group, lambda: None) for group in groups)
    return [one.stem for one in base.distinct(planned)]


def test_a_file_has_the_model_and_the_seed_where_there_is_one():
    assert stems([fit(), fit("baseline")]) == ["ood-digits-s0"]
    assert stems([fit(seed=0), fit(seed=1)]) == ["ood-digits-jem"]
    assert stems([fit("jem:norm=batch", "imagefolder:root=/a", "digits+epochs=5")]) == [
        "ood-imagefolder-jem-s0"
    ]


def test_files_are_told_apart_by_what_differs():
    fits = (
        fit("jem:norm=batch"),
        fit("jem:norm=batch", recipe="digits+epochs=5"),
        fit(),
        fit(seed=1),
    )
    assert stems(*([one] for one in fits)) == [
        "ood-digits-jem-s0-norm=batch-digits",
        "ood-digits-jem-s0-norm=batch-digits+epochs=5",
        "ood-digits-jem-s0-digits",
        "ood-digits-jem-s1",
    ]


@given(
    st.lists(
        st.builds(fit, st.sampled_from(MODELS), recipe=st.sampled_from(["paper", "a/b", "a-b"])),
        max_size=9,
    )
)
def test_no_two_files_have_one_name(fits):
    found = stems(*([one] for one in fits))
    assert len(set(found)) == len(fits)
    assert all(len(stem) < 90 and "/" not in stem for stem in found)
    assert stems(*([one] for one in fits)) == found


def test_a_model_has_its_recipe_where_another_has_its_name():
    paper, short = fit(recipe="paper"), fit(recipe="digits+epochs=5")
    for names, expected in (
        (NO_NAMES, ["jem (paper)", "jem (digits+epochs=5)"]),
        (
            DisplayNames(models={("jem", "paper"): "JEM", ("jem", "digits+epochs=5"): "JEM"}),
            ["JEM (paper)", "JEM (digits+epochs=5)"],
        ),
        (
            DisplayNames(
                models={("jem", "paper"): "JEM", ("jem", "digits+epochs=5"): "JEM, short"}
            ),
            ["JEM", "JEM, short"],
        ),
        (
            DisplayNames(recipes={"digits+epochs=5": "five epochs"}),
            ["jem (paper)", "jem (five epochs)"],
        ),
    ):
        shown = base.display_names([paper, short], names)
        assert [base.model_of(one, shown) for one in (paper, short)] == expected
    assert (
        base.model_of(
            short, base.display_names([short, dataclasses.replace(short, seed=1)], NO_NAMES)
        )
        == "jem"
    )


def test_a_legend_of_long_names_stays_within_its_figure_and_has_room_below_the_axes():
    figure, (axes,) = drawing.panels("title", 2.0)
    for name in "abcdefgh":
        axes.plot([], [], label=f"{name} " * 40)
    drawing.legend_below(figure, axes, columns=4)
    figure.draw_without_rendering()
    legend, width = figure.legends[0].get_window_extent(), figure.get_figwidth() * figure.dpi
    assert legend.x0 >= 0
    assert legend.x1 <= width
    assert axes.get_window_extent().height > 0.3 * 2.0 * figure.dpi


def test_a_dataset_has_its_options_where_another_has_its_name():
    folders = [fit(dataset=f"imagefolder:root=/{name}") for name in "ab"]
    alone = base.display_names(folders[:1], NO_NAMES)
    both = base.display_names(folders, NO_NAMES)
    assert base.title_of(folders[0], alone) == "jem on imagefolder, seed 0"
    assert base.title_of(folders[0], both) == "jem on imagefolder:root=/a, seed 0"
