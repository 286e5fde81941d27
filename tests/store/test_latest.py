import dataclasses

from jembench.catalog.spec import Spec
from jembench.interfaces import Value
from jembench.store.latest import newest
from jembench.store.outcome import Cell, FitKey, Outcome


def cell(code, seed=0, metric="accuracy", *, day, model="mine", limit=None):
    """A cell of a fit by some code, measured on a day of a month."""
    fit = FitKey(
        model=Spec(model),
        dataset=Spec("d"),
        recipe="r",
        seed=seed,
        id=f"{model}{code}{seed}",
        family=f"{model}{code}",
    )
    provenance = {"time": f"2026-11-{day:02d}T12:00:00+00:00", "limit": limit}
    outcome = Outcome(status="ok", values={"x": Value(1.0, None, None, 1)})
    name = f"{fit.id}{metric}{limit}{day}"
    return Cell(id=name, fit=fit, metric=Spec(metric), outcome=outcome, provenance=provenance)


def replaced(one, **provenance):
    return dataclasses.replace(one, provenance={**one.provenance, **provenance})


def shown(cells):
    return {
        (found.fit.family, found.fit.seed, found.metric, found.provenance["limit"])
        for found in newest(cells)
    }


def test_what_has_names_of_its_own_is_shown():
    cells = [
        cell("a", day=1),
        cell("a", seed=1, day=2),
        cell("a", metric="nll", day=3),
        cell("b", model="other", day=4),
    ]
    assert newest(cells) == cells


def test_a_fit_whose_data_were_moved_has_the_name_that_it_was_last_measured_by():
    def at(place, one):
        return dataclasses.replace(
            one, fit=dataclasses.replace(one.fit, dataset=f"imagefolder:root={place}")
        )

    cells = [
        at("/new", cell("a", metric="nll", day=2)),
        at("/old", cell("a", day=1)),
        at("/old", cell("b", day=3)),
    ]
    found = {one.metric: one.fit.dataset for one in newest(cells) if one.fit.family == "minea"}
    assert found == {"nll": "imagefolder:root=/new", "accuracy": "imagefolder:root=/new"}


def test_one_dataset_in_two_places_is_one_under_the_name_that_was_last_measured():
    def at(place, one, dataset):
        fit = dataclasses.replace(one.fit, dataset=f"imagefolder:root={place}")
        return replaced(dataclasses.replace(one, fit=fit), dataset_id=dataset)

    cells = [
        at("/old", cell("a", day=1), "same"),
        at("/new", cell("b", model="other", day=2), "same"),
        at("/elsewhere", cell("c", model="third", day=3), "another"),
    ]
    found = {one.fit.model: one.fit.dataset for one in newest(cells)}
    assert found == {
        "mine": "imagefolder:root=/new",
        "other": "imagefolder:root=/new",
        "third": "imagefolder:root=/elsewhere",
    }


def test_of_one_metric_measured_twice_the_later_is_shown():
    early, late = cell("a", day=1), cell("a", day=2)
    assert newest([late, early]) == [late]


def test_seeds_and_metrics_of_former_code_are_not_shown_beside_new_ones():
    cells = [cell("a", seed, metric, day=1) for seed in (0, 1, 2) for metric in ("accuracy", "nll")]
    cells += [cell("b", 0, "accuracy", day=2), cell("b", 0, "nll", day=2, limit=20)]
    assert shown(cells) == {("mineb", 0, "accuracy", None), ("mineb", 0, "nll", 20)}


def test_of_two_codes_of_a_metric_the_one_measured_last_is_shown():
    old, new = (
        replaced(cell("a", metric="mine", day=day), metric_id=name)
        for day, name in ((3, "old"), (4, "new"))
    )
    assert newest([new, old]) == [new]


def test_a_note_says_of_what_there_are_earlier_versions():
    cells = [cell("a", seed, day=1 + seed) for seed in (0, 1)] + [
        cell("b", day=5),
        cell("c", model="other", day=3),
    ]
    notes = []
    newest(cells, notes.append)
    (note,) = notes
    assert note == (
        "2 outcomes of earlier versions of mine on d, recipe r, measured until 2026-11-02; "
        "shown is the version measured last, on 2026-11-05."
    )
    newest(cells[2:], notes.append)
    assert notes == [note]
