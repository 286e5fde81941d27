"""Figures of attacks: the curves are those of the distances, and images are shown whatever they
look like.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jembench.drawing import BLACK, VERMILLION
from jembench.drawing import styled as in_our_style
from jembench.report.figures import adversarial, robustness
from jembench.report.figures.base import Result, distinct
from jembench.stats.intervals import wilson

CURVES = "pgd-curves-digits-s0"
SPENT = "pgd:data=digits,images=60,steps=40"


@pytest.fixture(autouse=True)
def styled():
    with in_our_style():
        yield


def column(rows, name):
    return [row[name] for row in rows]


def texts_of(axes):
    return [text.get_text() for text in axes.texts]


def standing(distance, found, eps):
    return sum(not hit or 255 * far > eps for far, hit in zip(distance, found, strict=True))


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0.0, 0.01, 0.25, 1.0]) | st.floats(0, 60, width=16), st.booleans()
        ),
        min_size=1,
    )
)
def test_the_curve_is_the_share_that_withstands(images):
    distance, found = np.array([far for far, _ in images]), np.array([hit for _, hit in images])
    steps = robustness.accuracy_over(distance, found)
    assert steps.eps[0] == 0
    assert (np.diff(steps.eps) > 0).all()
    assert set(steps.eps) == {0, *(255 * distance[found])}
    middles = (steps.eps[:-1] + steps.eps[1:]) / 2
    # at each step, and up to the next one
    for places in (steps.eps, np.append(middles, steps.eps[-1] + 1)):
        for eps, accuracy, low, high in zip(places, *steps[1:], strict=True):
            count = standing(distance, found, eps)
            assert accuracy == pytest.approx(100 * count / len(images))
            assert (low, high) == pytest.approx(
                tuple(100 * end for end in wilson(count, len(images)))
            )


def test_the_curve_begins_at_the_accuracy_and_is_drawn_with_its_band(everything, planned):
    drawing = planned[CURVES].draw()
    panel = drawing.figure.axes[0]
    arrays = next(arrays for cell, arrays in everything if cell.metric == "pgd:norm=linf")
    rows = [row for row in drawing.rows if (row["norm"], row["model"]) == ("linf", "jem")]
    assert rows[0]["accuracy"] == pytest.approx(100 * (60 - 2) / 60)
    assert rows[-1]["accuracy"] == pytest.approx(100 / 60)
    assert column(rows[1:], "eps_255") == pytest.approx(sorted(255 * arrays["distance-linf"][2:-1]))
    line = panel.lines[0]
    assert line.get_drawstyle() == "steps-post"
    assert line.get_xdata() == pytest.approx([*column(rows, "eps_255"), panel.get_xlim()[1]])
    assert line.get_ydata() == pytest.approx([*column(rows, "accuracy"), rows[-1]["accuracy"]])
    outline = panel.collections[0].get_paths()[0].vertices
    assert {*column(rows, "low"), *column(rows, "high")} <= set(outline[:, 1])


def test_each_norm_has_a_panel_with_its_models(planned):
    drawing = planned[CURVES].draw()
    assert [axes.get_title(loc="left") for axes in drawing.figure.axes] == ["L∞", "L2"]
    curves = list(dict.fromkeys((row["model"], row["norm"]) for row in drawing.rows))
    assert curves == [
        ("jem", "linf"),
        ("jem", "l2"),
        ("jem, refinement steps 10", "linf"),
        ("baseline", "linf"),
    ]
    legend = [text.get_text() for text in drawing.figure.legends[0].get_texts()]
    assert legend == ["jem", "jem, refinement steps 10", "baseline"]
    assert drawing.figure.get_suptitle().splitlines() == [
        "PGD attack: digits, seed 0",
        "images 60, restarts 20, steps 40, averaged chains 5, gradient through the chains",
    ]


def test_an_attack_of_no_one_norm_is_in_both_panels(everything, planned):
    drawing = planned["boundary-curves-digits-jem-s0"].draw()
    arrays = next(arrays for cell, arrays in everything if cell.metric == "boundary")
    for norm, axes in zip(("linf", "l2"), drawing.figure.axes, strict=True):
        largest = 255 * arrays[f"distance-{norm}"][:-1].max()
        rows = [row for row in drawing.rows if row["norm"] == norm]
        assert max(column(rows, "eps_255")) == pytest.approx(largest)
        few = min(row["eps_255"] for row in rows if row["accuracy"] <= robustness.FEW)
        assert few < largest
        # one that stands alone does not stretch it
        assert axes.get_xlim() == pytest.approx((0, 1.1 * few))


def test_what_withstands_everything_is_level(attack_arrays):
    attack_arrays["found"][:] = False
    steps = robustness.accuracy_over(attack_arrays["distance-linf"], attack_arrays["found"])
    drawing = robustness.curves("", [robustness.Curve("jem", "linf", 60, steps)])
    assert column(drawing.rows, "accuracy") == [100]
    assert drawing.figure.axes[0].get_xlim() == (0, 1)


def results(cell, arrays, *attacks):
    return [
        Result(cell(f"pgd:{part}", f"{SPENT},{part}", model=model, **more), arrays)
        for model, part, more in attacks
    ]


def curves_of(cell, arrays, *parts):
    found = results(cell, arrays, *(("jem", f"norm=linf,{part}", {}) for part in parts))
    return [curve.model for curve in robustness.curves_of(found)]


def test_curves_are_told_apart_by_what_differs(cell, attack_arrays):
    ten = "eot=5,grad=through,refine=10"
    assert curves_of(cell, attack_arrays, ten, "eot=5,grad=through,refine=1", "refine=0") == [
        "jem",
        "jem, refinement steps 1",
        "jem, refinement steps 10",
    ]
    assert curves_of(
        cell, attack_arrays, "eot=10,grad=through,refine=10", ten, "eot=1,grad=through,refine=10"
    ) == [
        "jem, averaged chains 1",
        "jem, averaged chains 5",
        "jem, averaged chains 10",
    ]
    assert curves_of(cell, attack_arrays, ten, "eot=5,grad=bpda,refine=10") == [
        "jem, gradient BPDA",
        "jem, gradient through the chains",
    ]


def test_the_title_has_what_refined_models_have_in_common(cell, attack_arrays):
    def ending(*parts):
        found = results(cell, attack_arrays, *(("jem", f"norm=linf,{part}", {}) for part in parts))
        title = next(robustness.plan(found)).draw().figure.get_suptitle()
        return title.replace("\n", " ").partition("steps 40")[2]

    assert ending("refine=0") == ""
    assert ending("eot=1,grad=bpda,refine=10", "refine=0") == ", averaged chains 1, gradient BPDA"
    assert (
        ending("eot=1,grad=bpda,refine=10", "eot=5,grad=bpda,refine=10")
        == ", refinement steps 10, gradient BPDA"
    )
    assert (
        ending("eot=1,grad=bpda,refine=10", "eot=5,grad=through,refine=10")
        == ", refinement steps 10"
    )


def test_other_budgets_seeds_and_limits_are_other_figures(cell, attack_arrays):
    same = [("jem", "norm=linf,restarts=20", {}), ("baseline", "norm=l2,restarts=20", {})]
    others = [
        ("jem", "norm=linf,restarts=5", {}),
        ("jem", "norm=linf,restarts=20", {"seed": 1}),
        ("jem", "norm=linf,restarts=20", {"limit": 9}),
    ]
    found = robustness.plan(results(cell, attack_arrays, *same, *others))
    stems = [figure.stem for figure in distinct(found)]
    assert [stem for stem in stems if "curves" in stem] == [
        "pgd-curves-digits-s0",
        "pgd-curves-digits-jem-s0-restarts=5",
        "pgd-curves-digits-jem-s0-restarts=20-limit=9",
        "pgd-curves-digits-jem-s1",
    ]


def test_an_attack_of_one_size_has_images_and_no_curve(cell, attack_arrays):
    found = results(cell, attack_arrays, ("jem", "eps=8/255,norm=linf", {}))
    (planned,) = robustness.plan(found)
    assert "images" in planned.stem
    assert planned.draw().figure.get_suptitle() == "PGD within 8/255: jem on digits, seed 0"


def test_images_are_taken_in_turn_from_the_classes_by_their_place_in_the_test_split():
    labels = np.array([0, 0, 0, 0, 1, 1, 2])
    index = np.array([40, 10, 30, 20, 60, 50, 70])
    everywhere = np.ones(7, dtype=bool)
    assert adversarial.spread(labels, index, everywhere, 3).tolist() == [1, 5, 6]
    assert adversarial.spread(labels, index, everywhere, 4).tolist() == [1, 3, 5, 6]
    assert adversarial.spread(labels, index, index != 10, 3).tolist() == [3, 5, 6]
    assert adversarial.spread(labels, index, everywhere, 99).tolist() == [1, 3, 2, 0, 5, 4, 6]


def test_misclassified_images_are_not_shown_but_those_that_withstood_are(attack_arrays):
    attack_arrays["found"][5:] = False
    kept = {name: array[:9] for name, array in attack_arrays.items()}
    rows = adversarial.changes("", kept, ["linf"]).rows
    assert sorted(column(rows, "index")) == sorted(kept["index"][2:].tolist())
    assert [row["found"] for row in rows].count(True) == 3


def test_what_stands_at_an_image_is_of_that_image(attack_arrays):
    drawing = adversarial.changes("", attack_arrays, ["linf", "l2"])
    (axes,) = drawing.figure.axes
    assert len(drawing.rows) == 10
    assert set(column(drawing.rows, "label")) == {0, 1, 2, 3}
    below = [label.get_text() for label in axes.get_xticklabels()]
    for row, classes, distances in zip(drawing.rows, texts_of(axes), below, strict=True):
        place = attack_arrays["index"].tolist().index(row["index"])
        linf, l2 = (255 * attack_arrays[f"distance-{norm}"][place] for norm in ("linf", "l2"))
        assert classes == f"{attack_arrays['label'][place]} → {attack_arrays['predicted'][place]}"
        assert distances == f"L∞ {linf:.1f}\nL2 {l2:.1f}"
        assert (row["linf_255"], row["l2_255"]) == pytest.approx((linf, l2))


def test_the_three_rows_are_the_image_what_became_of_it_and_the_change(attack_arrays):
    one = {name: array[2:3] for name, array in attack_arrays.items()}
    original = one["image"]
    one["adversarial"] = (original / 255).astype(np.float32)
    original[0, 0, 0, 0], one["adversarial"][0, 0, 0, 0] = 51, 0.29  # a change of 0.09
    drawing = adversarial.changes("", one, ["linf"])
    (axes,) = drawing.figure.axes
    picture = np.asarray(axes.images[0].get_array())
    assert drawing.rows[0]["factor"] == 5
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "original",
        "adversarial",
        "difference\nx 5",
    ]
    assert picture[[0, 68, 136], 0, 0].tolist() == [51, 74, 242]
    assert picture[[0, 68, 136], 8, 0] == pytest.approx([original[0, 0, 0, 1]] * 2 + [128], abs=1)


def test_an_image_that_withstood_says_so(attack_arrays):
    last = {name: array[-1:] for name, array in attack_arrays.items()}
    drawing = adversarial.changes("", last, ["linf"])
    assert [label.get_text() for label in drawing.figure.axes[0].get_xticklabels()] == ["robust"]
    assert drawing.rows[0]["factor"] == 1


def test_rounding_is_no_change():
    change = np.zeros((4, 1, 2, 2), dtype=np.float32)
    change[:3, 0, 0, 0] = 3e-8
    assert adversarial.amplification(change) == 1
    change[3, 0, 1, 1] = -0.02
    assert adversarial.amplification(change) == 25


def test_a_model_that_is_always_wrong_has_curves_and_no_images(cell, attack_arrays):
    attack_arrays["found"][:] = True
    for norm in ("linf", "l2"):
        attack_arrays[f"distance-{norm}"][:] = 0
    (planned,) = robustness.plan([Result(cell("boundary", "boundary:queries=9"), attack_arrays)])
    assert planned.stem == "boundary-curves-digits-jem-s0"
    assert [(row["norm"], row["eps_255"], row["accuracy"]) for row in planned.draw().rows] == [
        ("linf", 0, 0),
        ("l2", 0, 0),
    ]


def test_ends_stand_in_the_row_of_their_class_and_say_where_confidence_fell_short(ends_arrays):
    arrays = ends_arrays()
    drawing = adversarial.ends("jem", arrays, 0.9)
    (axes,) = drawing.figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["0", "1", "2", "3"]
    assert [(row["row"], row["index"]) for row in drawing.rows] == [
        (n % 4, n) for c in range(4) for n in range(c, 14, 4)
    ]
    for row, text in zip(drawing.rows, axes.texts, strict=True):
        confidence = arrays["confidence"][row["index"]]
        assert row["confidence"] == confidence
        assert text.get_text() == f"{confidence:.2f}" + (" *" if confidence <= 0.9 else "")
        assert text.get_color() == (VERMILLION if confidence <= 0.9 else BLACK)
    assert (
        drawing.figure.get_suptitle() == f"jem\n{arrays['reached'].sum()} of 14 reach p(y|x) > 0.9"
    )
    assert axes.get_xlabel().endswith("*: not reached")


def test_where_all_were_reached_nothing_is_explained(ends_arrays):
    arrays = {**ends_arrays(), "reached": np.ones(14, dtype=bool)}
    assert "*" not in adversarial.ends("", arrays, 0.9).figure.axes[0].get_xlabel()


def test_one_class_is_one_row_and_many_classes_share_rows():
    grid, labels = adversarial.by_class(np.full(30, 7))
    assert labels == ["7"]
    assert grid.tolist() == [list(range(10))]
    grid, labels = adversarial.by_class(np.arange(24) % 12)
    assert labels == ["0 to 4", "5 to 9", "10 to 11"]
    assert grid[0].tolist() == [0, 12, 1, 13, 2, 14, 3, 15, 4, 16]
    assert grid[2].tolist() == [10, 22, 11, 23, -1, -1, -1, -1, -1, -1]


def test_beside_transferred_images_stands_what_the_model_withstands_itself(cell, attack_arrays):
    itself = {
        "distance-linf-as-it-is": attack_arrays["distance-linf"] / 2,
        "found-as-it-is": attack_arrays["found"],
    }
    found = [
        Result(
            cell("transfer", f"transfer:data=digits,norm=linf,refine={steps}"),
            attack_arrays | itself,
        )
        for steps in (1, 10)
    ]
    curves = robustness.curves_of(found)
    assert [curve.model for curve in curves] == [
        "jem, attacked itself",
        "jem, refinement steps 1",
        "jem, refinement steps 10",
    ]
    assert curves[0].steps.eps[-1] == pytest.approx(curves[1].steps.eps[-1] / 2)
