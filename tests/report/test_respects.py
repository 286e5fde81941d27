"""The joint view: which value stands for a respect, and the Pareto front against its definition."""

import dataclasses
import itertools

import numpy as np
import pytest

from jembench.catalog.spec import Spec
from jembench.interfaces import Value
from jembench.report.figures import joint
from jembench.report.layout import Report
from jembench.report.respects import RESPECTS, front, headline
from jembench.report.rows import Row, rows
from jembench.report.significance import Significance
from jembench.store.outcome import Outcome

VALUE = Value(1.0, 0.5, 2.0, 9, "", "higher")
KINDS = list(RESPECTS)


def row(model, kind, value, better="higher", **more):
    return Row(
        **{"model": model, "name": "", "dataset": "d", "metric": kind, "comparable": True, **more},
        value=value,
        better=better,
    )


def test_most_models_then_preference_then_fewest_options_choose_the_value_of_a_respect(
    cell,
):
    fids = itertools.product(("jem", "glow"), ("fid:source=fresh,steps=10", "fid"))
    cells = [
        *(cell(model, metric, fid_cnn=VALUE) for model, metric in fids),
        *(cell(model, "is", is_cnn=VALUE) for model in ("jem", "glow")),
        cell("own", "is", is_cnn=VALUE),
        cell(
            "jem",
            "pgd:budget=quick",
            **{"pgd_linf": VALUE, "pgd_linf@4/255": VALUE, "pgd_linf@8/255": VALUE},
        ),
        cell("glow", "pgd:budget=quick,refine=10", **{"pgd_linf@8/255": VALUE}),
        cell("jem", "nll", nll=VALUE),
        cell("jem", "accuracy", outcome=Outcome(status="na", reason="no logits")),
    ]
    respects = headline(Report(cells).rows)
    assert {
        respect: {row.place for row in of_respect} for respect, of_respect in respects.items()
    } == {
        "generation": {("is", "is-cnn")},
        "robustness": {("pgd:budget=quick", "pgd-linf@8/255")},
    }
    respects = headline([row for row in Report(cells).rows if row.model != "own"])
    assert [(row.model, row.metric) for row in respects["generation"]] == [
        ("jem", "fid"),
        ("glow", "fid"),
    ]


def outliers(cell, model, seed=0, **aurocs):
    for name, auroc in aurocs.items():
        made = cell(
            model,
            f"ood:set={name}",
            seed=seed,
            auroc=Value(auroc, auroc - 0.1, auroc + 0.05, 9, "", "higher"),
        )
        protocol = f"ood:data=digits,score=log-px,set={name}"
        yield dataclasses.replace(
            made, outcome=dataclasses.replace(made.outcome, protocol=protocol)
        )


def table_of(seed, models=7, lacking=0.2):
    """Random values of some models, of which some lack some: rows by respect."""
    rng = np.random.default_rng(seed)
    better = dict(zip(KINDS, itertools.cycle(["higher", "lower"]), strict=False))
    return {
        kind: [
            row(f"m{n}", kind, rng.normal(), better[kind])
            for n in range(models)
            if rng.uniform() >= lacking
        ]
        for kind in KINDS
    }


def by(margin):
    """Return a test by which values differ that are more than a margin apart."""

    def better(a, b, among):
        sign = 1 if a.better == "higher" else -1
        return sign * (a.value - b.value) > margin * (1 + 0.1 * (among - 1))

    return better


def names(fits):
    return {model for model, *_ in fits}


def changed(table, model, kind, by):
    """Return the table in which a value of a model is better by so much."""
    better = [
        dataclasses.replace(row, value=row.value + (by if row.better == "higher" else -by))
        for row in table[kind]
    ]
    return table | {
        kind: [
            new if new.model == model else old for new, old in zip(better, table[kind], strict=True)
        ]
    }


def brute_force(table, better):
    """The definition, by sets: whoever is dominated by a model that it does not reach over others
    is out.
    """
    own = {row.model: {} for row in itertools.chain(*table.values())}
    for kind, of_kind in table.items():
        for row in of_kind:
            own[row.model][kind] = row
    edges = {
        (a, b)
        for a, b in itertools.permutations(own, 2)
        if not set(own[b]) - set(own[a])
        and {kind for kind in own[b] if better(own[a][kind], own[b][kind], len(own[b]))}
        and not {kind for kind in own[b] if better(own[b][kind], own[a][kind], 1)}
    }
    reached = set(edges)
    while (
        more := {(a, d) for (a, b), (c, d) in itertools.product(reached, edges) if b == c} - reached
    ):
        reached |= more
    return {b for b in own if all((b, a) in reached for a in own if (a, b) in reached and a != b)}


@pytest.mark.parametrize("seed", range(40))
def test_the_front_is_that_of_its_definition_in_any_order_and_an_improvement_keeps_a_model_in_it(
    seed,
):
    table, margin = table_of(seed), (0.0, 0.3, 1.0, 2.0)[seed % 4]
    in_front = names(front(table, by(margin)))
    assert in_front == brute_force(table, by(margin))
    assert in_front, "a front is never empty"
    assert (
        names(front({kind: of_kind[::-1] for kind, of_kind in reversed(table.items())}, by(margin)))
        == in_front
    )
    cost = [row("m0", "training time", -9.0), row("m9", "training time", 9.0)]
    assert names(front(table | {"training time": cost}, by(margin))) == in_front
    for kind in KINDS:
        for of_model in table[kind]:
            if of_model.model in in_front:
                assert of_model.model in names(
                    front(changed(table, of_model.model, kind, 0.7), by(margin))
                )


def test_where_no_test_is_possible_a_worse_value_keeps_a_model_from_dominating():
    table = {"accuracy": [row("a", "accuracy", 90), row("b", "accuracy", 80)]}
    table["generation"] = [row("a", "fid", 100, "lower"), row("b", "fid", 10, "lower")]

    def better(a, b, among):
        return None if a.metric == "fid" else by(1)(a, b, among)

    assert names(front(table, better)) == {"a", "b"}
    table["generation"][0] = row("a", "fid", 9, "lower")
    assert names(front(table, better)) == {"a"}


@pytest.mark.parametrize("seed", range(5))
def test_of_complete_exact_values_it_is_the_usual_pareto_front(seed):
    table = table_of(seed, models=30, lacking=0)
    points = np.array(
        [
            [row.value if row.better == "higher" else -row.value for row in table[kind]]
            for kind in KINDS
        ]
    ).T
    dominated = [((points >= point).all(1) & (points > point).any(1)).any() for point in points]
    assert names(front(table, by(0.0))) == {
        f"m{number}" for number, out in enumerate(dominated) if not out
    }


def test_models_that_dominate_one_another_in_a_circle_do_not_exclude_each_other():
    steps = {"accuracy": (2, 0, 1), "generation": (1, 2, 0), "OOD detection": (0, 1, 2)}
    table = {
        kind: [row(f"m{n}", kind, value) for n, value in enumerate(of_kind)]
        for kind, of_kind in steps.items()
    }
    assert names(front(table, by(1.5))) == {"m0", "m1", "m2"}
    table["accuracy"].append(row("m3", "accuracy", -9))
    assert names(front(table, by(1.5))) == {"m0", "m1", "m2"}
    table["accuracy"] += [
        row("m3", "accuracy", -9, dataset="e"),
        row("m4", "accuracy", -9, comparable=False),
    ]
    assert names(front(table, by(1.5))) == {"m0", "m1", "m2", "m3"}


def test_without_tests_no_model_is_called_dominated_in_the_figure():
    named = [row(name, Spec("accuracy"), 9.0, name=name, recipe="r") for name in "ab"]
    respects = {"accuracy": named}
    figure, lines = joint.panels("all", respects, None)
    assert [line["standing"] for line in lines] == ["not tested", "not tested"]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["not tested"]


def test_what_is_significant_is_bold_and_in_the_front_and_what_is_not_shares_a_mark(cell):
    right = {"jem": 390, "glow": 388, "own": 300}
    cells, arrays = [], {}
    for model, count in right.items():
        share = 100 * count / 400
        cells.append(cell(model, accuracy=Value(share, share - 2, share + 2, 400, "%", "higher")))
        arrays[cells[-1].id] = {"correct": np.arange(400) < count}
        auroc = {"jem": 0.9, "glow": 0.5, "own": 0.6}[model]
        cells += outliers(cell, model, interp=auroc)
    document = Report(cells, joint=True, read=lambda cell: arrays.get(cell.id, {}))
    (table,) = document.tables()
    shown = {line[0].value: line for line in table.rows}
    assert [name for name, line in shown.items() if "*" in line[0].marks] == ["jem"]
    assert {name: line[1].marks for name, line in shown.items()} == {
        "jem": ("=",),
        "glow": ("=",),
        "own": (),
    }
    assert [name for name, line in shown.items() if line[2].best] == ["jem"]
    assert {note.mark for note in table.footnotes} >= {"*", "="}
    jem, glow, _ = (row for row in document.rows if row.metric == "ood:set=interp")
    tests = Significance(rows(cells), lambda cell: {})
    assert tests.is_better(jem, glow)
    assert not tests.is_better(glow, jem)
    assert not tests.is_better(jem, glow, among=1 + int(0.05 / tests.test(jem, glow).larger_p))
