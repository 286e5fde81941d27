"""The numbers behind figures are those of the arrays, and what is drawn is those numbers."""

import numpy as np
import pytest

from jembench.drawing import styled as in_our_style
from jembench.interfaces import Value
from jembench.report.figures import calibration, density, detection, generation
from jembench.report.figures.base import Result, distinct, with_interval
from jembench.report.figures.images import ages_by_class
from jembench.report.figures.values import hours, seeds, strips


@pytest.fixture(autouse=True)
def styled():
    with in_our_style():
        yield


def rows_of(planned, stem):
    return planned[stem].draw().rows


def column(rows, name):
    return [row[name] for row in rows]


def test_reliability_is_of_the_predictions_of_each_bin(everything, planned):
    cell, arrays = everything[0]
    rows = rows_of(planned, "reliability-digits-jem-s0")
    assert column(rows, "bin_low") == pytest.approx(np.arange(10) / 10)
    assert sum(column(rows, "count")) == len(arrays["confidence"])
    for row in rows:
        inside = (arrays["confidence"] >= row["bin_low"]) & (arrays["confidence"] < row["bin_high"])
        assert row["count"] == inside.sum()
        if row["count"]:
            assert row["accuracy"] == pytest.approx(arrays["correct"][inside].mean())
            assert row["confidence"] == pytest.approx(arrays["confidence"][inside].mean())
    assert {row["ece"] for row in rows} == {cell.outcome.values["ece"].value}


def test_the_gap_is_drawn_between_accuracy_and_confidence(planned):
    drawing = planned["reliability-digits-jem-s0"].draw()
    above = drawing.figure.axes[0]
    filled = [row for row in drawing.rows if row["count"]]
    accuracy, gap = above.containers
    assert [bar.get_height() for bar in accuracy] == pytest.approx(column(filled, "accuracy"))
    ends = [sorted((bar.get_y(), bar.get_y() + bar.get_height())) for bar in gap]
    assert np.array(ends) == pytest.approx(
        np.array([sorted((r["accuracy"], r["confidence"])) for r in filled])
    )
    assert "ECE 2.00 % [1.00, 3.50]" in drawing.figure.get_suptitle()


def test_models_are_compared_before_and_after_scaling(planned):
    drawing = planned["reliability-compared-digits-s0"].draw()
    titles = [axes.get_title(loc="left") for axes in drawing.figure.axes]
    assert [title.splitlines()[0] for title in titles] == [
        "jem",
        "jem, temperature scaling",
        "baseline",
    ]
    assert all("ECE 2.00 % [1.00, 3.50]" in title for title in titles)
    assert {(row["model"], row["scaling"]) for row in drawing.rows} == {
        ("jem", "none"),
        ("jem", "temperature"),
        ("baseline", "none"),
    }


def test_predictions_of_other_bins_or_images_are_not_compared(cell, everything):
    first, arrays = everything[0]
    ece = first.outcome.values
    others = [
        cell("ece:bins=15", "ece:bins=15,images=60,split=test", ece, model="a"),
        cell("ece:bins=10", "ece:bins=10,images=50,split=test", ece, model="b"),
        cell("ece:bins=10", "ece:bins=10,images=60,split=test", ece, model="c", dataset="svhn"),
    ]
    stems = [
        planned.stem
        for planned in calibration.plan([Result(one, arrays) for one in (first, *others)])
    ]
    assert len(stems) == 4
    assert not any("compared" in stem for stem in stems)


def test_every_score_is_in_a_histogram(everything, planned):
    rows = rows_of(planned, "ood-max-py-digits-jem-s0")
    arrays = next(arrays for cell, arrays in everything if cell.metric.startswith("ood"))
    for images, scores in (("test images", arrays["inside"]), ("outliers", arrays["outside"])):
        counted = [row for row in rows if row["images"] == images and row["set"] == "interp"]
        assert sum(column(counted, "count")) == len(scores)
        for row in counted[1:-1]:
            assert row["count"] == ((scores >= row["bin_low"]) & (scores < row["bin_high"])).sum()


def scores(cell, inside, outside):
    return Result(cell("ood:set=interp"), {"inside": inside, "outside": outside})


def test_scores_far_away_do_not_flatten_the_histogram(cell):
    inside = np.concatenate([np.linspace(0, 1, 999), [1e9]])
    rows = detection.densities("", [scores(cell, inside, inside - 1)]).rows
    edges = column(rows, "bin_low") + column(rows, "bin_high")
    assert min(edges) > -1.2
    assert max(edges) < 1.2
    assert sum(column(rows, "count")) == 2000


def test_the_grid_has_a_row_for_each_set_and_a_column_for_each_score(cell):
    def of(name, score, low):
        protocol = f"ood:score={score},set={name}"
        return Result(
            cell(protocol, protocol),
            {"inside": np.linspace(0, 1, 9), "outside": np.linspace(low, 1, 9)},
        )

    results = [of("b", "grad-norm", -3.0), of("b", "log-px", -2.0), of("a", "log-px", -1.0)]
    planned = {figure.stem: figure for figure in detection.plan(results)}
    drawing = planned["ood-grid-digits-jem-s0"].draw()
    titles = [axes.get_title(loc="left") if axes.axison else None for axes in drawing.figure.axes]
    assert titles == ["jem, b", "jem, b", "jem, a", None]
    lowest = {}
    for row in drawing.rows:
        place = row["set"], row["score"]
        lowest[place] = min(lowest.get(place, 0), round(row["bin_low"]))
    assert lowest == {("b", "grad-norm"): -3, ("b", "log-px"): -2, ("a", "log-px"): -1}


def test_outliers_of_one_single_score_have_a_histogram(cell):
    same = np.full(20, -3.0)
    rows = detection.densities("", [scores(cell, same, same)]).rows
    assert max(column(rows, "count")) == 20


def test_auroc_and_its_interval_are_printed_and_drawn(planned):
    histogram = planned["ood-max-py-digits-jem-s0"].draw().figure
    assert [axes.get_title(loc="left") for axes in histogram.axes] == [
        f"{name}\nAUROC 0.800 [0.700, 0.900]" for name in ("interp", "uniform")
    ]
    drawing = planned["auroc-digits-jem-s0"].draw()
    assert [(row["set"], row["auroc"], row["low"], row["high"]) for row in drawing.rows] == [
        ("interp", 0.8, 0.7, 0.9),
        ("uniform", 0.8, 0.7, 0.9),
    ]
    (bars,) = drawing.figure.axes[0].collections
    assert [segment[:, 0].tolist() for segment in bars.get_segments()] == [
        pytest.approx([0.7, 0.9])
    ] * 2


def test_an_interval_that_is_not_known_is_not_drawn(cell):
    drawing = detection.auroc(
        [Result(cell("ood:set=interp", values={"auroc": Value(0.8, None, None, 20)}), {})]
    )
    (bars,) = drawing.figure.axes[0].collections
    assert all(len(segment) < 2 for segment in bars.get_segments())


def test_a_set_goes_by_its_name_where_that_is_enough(cell):
    def of(text):
        protocol = f'ood:score=max-py,set="{text}"'
        return Result(cell(protocol, protocol, {"auroc": Value(0.5, 0.4, 0.6, 9)}), {})

    def names(*texts):
        *_, last = detection.plan([of(text) for text in texts])
        return column(last.draw().rows, "set")

    assert names("celeba:root=/data", "interp") == ["celeba", "interp"]
    assert names("folder:root=/a", "folder:root=/b") == ["folder:root=/a", "folder:root=/b"]


def test_histograms_of_the_density_hold_every_image_of_each_class(density_arrays):
    scores, labels = density_arrays["log-px"], density_arrays["labels"]
    rows = density.by_class("", density_arrays).rows
    for number in range(4):
        counted = [row for row in rows if row["class"] == number]
        assert sum(column(counted, "count")) == (labels == number).sum()
        assert {row["median"] for row in counted} == {np.median(scores[labels == number])}


def test_without_labels_only_the_extremes_are_drawn(cell, density_arrays):
    for name in (
        "labels",
        "highest",
        "random",
        "lowest",
        "top-confidence",
        "bottom-confidence",
        "confidence",
    ):
        del density_arrays[name]
    (planned,) = density.plan([Result(cell("log-density"), density_arrays)])
    assert planned.stem == "log-density-extremes-digits-jem-s0"
    drawing = planned.draw()
    assert len(drawing.figure.axes) == 2
    assert set(column(drawing.rows, "class")) == {""}


def test_ages_are_summarised_for_each_class():
    predicted = np.repeat([0, 2], 101)
    chain_ages = np.concatenate([np.arange(101), 10 * np.arange(101)])
    drawing = ages_by_class("", {"ages": chain_ages, "predicted": predicted})
    young, old = drawing.rows
    assert young == {
        "class": 0,
        "chains": 101,
        "p5": 5,
        "q1": 25,
        "median": 50,
        "q3": 75,
        "p95": 95,
    }
    assert old == {
        "class": 2,
        "chains": 101,
        "p5": 50,
        "q1": 250,
        "median": 500,
        "q3": 750,
        "p95": 950,
    }
    assert [label.get_text() for label in drawing.figure.axes[0].get_xticklabels()] == ["0", "2"]


def test_the_score_against_the_share_kept(planned):
    drawing = planned["is-kept-digits-jem-s0"].draw()
    (axes,) = drawing.figure.axes
    assert column(drawing.rows, "kept") == [10, 50]
    assert column(drawing.rows, "is") == [7, 7]
    assert column(drawing.rows, "curve") == ["the model's confidence, one buffer"] * 2
    assert {"10", "50"} <= {label.get_text() for label in axes.get_xticklabels()}


def test_the_score_against_the_steps(planned):
    drawing = planned["kid-steps-digits-jem-s0"].draw()
    assert [(row["steps"], row["kid"], row["low"]) for row in drawing.rows] == [
        (5, 2, None),
        (100, 2, None),
    ]


def test_scores_of_other_protocols_are_other_figures(cell):
    def of(splits, top):
        kept = f"images={10 * top},pooling=one-buffer,selection=model"
        protocol = f"is:{kept},splits={splits},top={10 * top}/1000"
        metric = f"is:selection=model,splits={splits},top={top / 100}"
        return Result(cell(metric, protocol, {"is": Value(1.0, None, None, 9)}), {})

    results = [of(1, 10), of(1, 20), of(2, 10), of(2, 20), of(3, 10)]
    assert [planned.stem for planned in distinct(generation.plan(results))] == [
        "is-kept-digits-jem-s0-splits=1",
        "is-kept-digits-jem-s0-splits=2",
    ]  # the third has but one point


def fid(cell, model, seed, value):
    return Result(
        cell("fid", values={"fid": Value(value, None, None, 9)}, model=model, seed=seed), {}
    )


def test_seeds_with_their_mean_and_deviation(cell):
    values = [fid(cell, "jem", seed, value) for seed, value in enumerate((1.0, 2.0, 6.0))]
    drawing = strips("", [*values, fid(cell, "baseline", 0, 4.0)])
    assert [(row["model"], row["seed"], row["value"]) for row in drawing.rows] == [
        ("jem", 0, 1.0),
        ("jem", 1, 2.0),
        ("jem", 2, 6.0),
        ("baseline", 0, 4.0),
    ]
    (axes,) = drawing.figure.axes
    ((mean, _, (deviation,)),) = axes.containers  # one seed alone has neither
    assert mean.get_xdata().tolist() == [3.0]
    ((low, _), (high, _)) = deviation.get_segments()[0]
    assert (high - low) / 2 == pytest.approx(np.std([1, 2, 6], ddof=1))


def test_a_seed_that_diverged_is_in_the_numbers_and_in_no_mean(cell):
    values = [fid(cell, "jem", seed, value) for seed, value in enumerate((1.0, float("nan")))]
    drawing = strips("", values)
    assert len(drawing.rows) == 2
    assert drawing.figure.axes[0].containers == []


def test_one_seed_has_no_figure_of_seeds(cell):
    one_each = [cell("accuracy"), cell("accuracy", model="baseline", seed=1)]
    assert list(seeds([Result(one, {}) for one in one_each])) == []
    assert [
        planned.stem
        for planned in seeds([Result(cell("accuracy", seed=seed), {}) for seed in (0, 1)])
    ] == ["seeds-accuracy-digits-jem"]


def test_curves_of_long_chains_are_the_means_of_their_chains(planned, everything):
    arrays = next(arrays for cell, arrays in everything if cell.metric == "chain-drift")
    rows = rows_of(planned, "chain-drift-digits-jem-s0")
    found = {(row["quantity"], row["start"], row["steps"]): row["value"] for row in rows}
    assert len(found) == 4 * 2 * 4
    assert found["moved", "noise", 100] == pytest.approx(arrays["moved-noise"][3].mean())
    assert found["fid", "data", 4] == arrays["fid-data"][1]
    assert found["energy", "data", 0] == pytest.approx(
        arrays["energy-data"][0].mean() - arrays["energy-test"].mean()
    )


def test_densities_are_drawn_on_one_scale_with_samples_of_all_classes(planned, everything):
    arrays = next(arrays for cell, arrays in everything if cell.metric == "density-error")
    figure, rows = planned["density-error-digits-jem-s0"].draw()
    true, model, points, samples = figure.axes[:4]
    drawn = [axes.images[0] for axes in (true, model)]
    assert [np.asarray(image.get_array())[7, 200] for image in drawn] == pytest.approx(
        # the first is horizontal
        [arrays["true-cells"][200 * 256 + 7], np.exp(arrays["log-cells"][200 * 256 + 7])]
    )
    assert {image.get_clim() for image in drawn} == {(0, arrays["true-cells"].max())}
    assert model.get_title("left") == "jem\nKL 0.500"
    assert set(map(tuple, points.lines[0].get_xydata())) <= set(map(tuple, arrays["test"]))
    shown = samples.lines[0].get_xydata()
    assert len(shown) == 500
    assert np.ptp(shown[:, 0]) > 240  # the array is in the order of the first number
    assert rows == [{"model": "jem", "quantity": "kl", "value": 0.5, "low": None, "high": None}]


def test_the_passes_of_a_sample_are_of_all_models_and_join_the_new_chains_of_one(cell):
    made = {"chains:steps=9": (9, 4.0), "chains:steps=4": (4, 12.5), "buffer": (5.5, 7.0)}
    results = []
    for source, (passes, value) in made.items():
        steps = source.partition("=")[2]
        options = f":source=fresh,steps={steps}" if steps else ""
        values = {"fid": Value(value, None, None, 60)}
        results.append(
            cell(f"fid{options}", f"fid:source={source}", values, details={"sample_passes": passes})
        )
    planned = {one.stem: one for one in generation.plan([Result(one, {}) for one in results])}
    assert set(planned) == {"fid-steps-digits-jem-s0", "fid-passes-digits-jem-s0"}
    drawn = planned["fid-passes-digits-jem-s0"].draw()
    points = [(row["curve"], row["passes"], row["fid"]) for row in drawn.rows]
    assert points == [
        ("jem, new chains", 9, 4.0),
        ("jem, new chains", 4, 12.5),
        ("jem, kept chains", 5.5, 7.0),
    ]
    assert [len(line.get_xdata()) for line in drawn.figure.axes[0].lines] == [2, 1]


def test_accuracy_stands_against_the_hours_of_the_same_training_on_one_machine(cell):
    cells = []
    for model, time, accuracy, hardware in (
        ("jem", 2.0, 91.0, "a"),
        ("baseline", 0.5, 93.0, "a"),
        ("kde", None, 80.0, "a"),
        ("glow", 0.1, 70.0, "b"),
    ):
        values = {"training-hours": Value(time, None, None, 1)} if time else {}
        cells += [
            cell("iteration-time", f"iteration-time:hardware={hardware}", values, model=model)
        ]
        cells += [
            cell("accuracy", "accuracy", {"accuracy": Value(accuracy, None, None, 60)}, model=model)
        ]
    (figure,) = hours([Result(cell, {}) for cell in cells])
    assert figure.stem == "accuracy-hours-digits-s0"
    rows = figure.draw().rows
    assert [(row["curve"], row["hours"], row["accuracy"]) for row in rows] == [
        ("jem", 2.0, 91.0),
        ("baseline", 0.5, 93.0),
    ]


def test_no_end_of_an_interval_in_a_figure_is_minus_zero():
    assert with_interval(Value(-0.0001, -0.001, 0.4, 9), 2, " %") == "0.00 % [0.00, 0.40]"
