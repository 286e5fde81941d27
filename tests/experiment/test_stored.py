"""Starts of fits: their names, and their effect on identities and order of work."""

import dataclasses
from functools import partial

import pytest

from jembench.errors import SpecError, Unavailable
from jembench.experiment.crossing import make_plan
from jembench.experiment.plan import plan_fit
from jembench.experiment.stored import check_stored, started
from jembench.experiment.suite import Run, Suite
from jembench.experiment.works import works
from jembench.store.fits import FitRecord
from jembench.store.outcome import encode
from jembench.store.store import Store


@pytest.fixture
def store(tmp_path):
    """A store, with a method that adds the record of a fit as if it had been trained."""
    store = Store(tmp_path / "runs")

    def add(fit):
        record = FitRecord(
            fit.key,
            "done",
            "",
            dataclasses.asdict(fit.recipe),
            1,
            None,
            1.0,
            [],
            [],
            {},
            fit.identity,
        )
        store.write_fit(record)
        for name in ("model", "sampler"):
            (store.fit_folder(fit.key) / f"{name}.safetensors").touch()
        return fit

    store.add = add
    return store


def fit_of(text="", model="baseline", seed=0, *more):
    return plan_fit(model, "digits", None, [*([f"start_from={text}"] if text else []), *more], seed)


def start_of(text, store, **how):
    return started(fit_of(text, **{"model": "jem", **how}), (), store).recipe.start_from


def test_a_start_is_identity_and_its_absence_is_not():
    plain, begun, other = fit_of(), fit_of("a" * 10), fit_of("b" * 10)
    assert "start_from" not in plain.identity["recipe"]
    assert len({plain.key.family, begun.key.family, other.key.family}) == 3
    assert begun.key.recipe == f"digits-quick+start_from={'a' * 10}"


def test_the_name_of_a_model_is_its_family_and_an_id_one_fit(store):
    first, second = (store.add(fit_of(seed=seed)) for seed in (0, 1))
    later = started(fit_of("baseline", "jem", 1), (), store)
    assert later.recipe.start_from == first.key.family == second.key.family
    assert (later.starts_from(second.key), later.starts_from(first.key)) == (True, False)
    assert later.key.recipe == "digits-quick+start_from=baseline"  # as it was written
    for text in (first.key.id, first.key.id[:7], store.fit_folder(first.key).name):
        fixed = started(fit_of(text, "jem", 1), (), store)
        assert fixed.starts_from(first.key)
        assert not fixed.starts_from(second.key)
    assert start_of(first.key.family, store) == first.key.family


def test_a_second_stage_is_not_what_the_name_of_its_model_means(store):
    first = store.add(fit_of())
    store.add(started(fit_of("baseline"), (), store))
    assert start_of("baseline", store, model="baseline") == first.key.family


def test_what_is_not_one_fit_is_refused(store):
    with pytest.raises(SpecError, match=r"There is no trained model in .* named 'baseline'"):
        start_of("baseline", store)
    one, other = store.add(fit_of()), store.add(fit_of("", "baseline", 0, "data.noise=0.2"))
    with pytest.raises(
        SpecError, match=r"start_from=baseline means several fits: .*Give an id"
    ) as caught:
        start_of("baseline", store)
    assert {one.key.id, other.key.id} <= set(str(caught.value).replace("(", " ").split())


def test_a_fit_that_came_without_its_start_is_found_by_the_id_of_its_start(store):
    later = store.add(fit_of(family := fit_of().key.family, "jem"))
    again = started(fit_of(family, "jem"), (), store)
    assert again.key == later.key
    check_stored([again], store)  # which is trained
    with pytest.raises(
        Unavailable, match=rf"fit {family}, and the store .* has no such fit with seed 1"
    ):
        check_stored([dataclasses.replace(again, seed=1)], store)


def test_stages_of_a_suite_are_carried_out_one_after_the_other(store):
    blocks = [
        ("baseline", "First", ()),
        ("jem", "", ("start_from=First",)),
        ("jem", "", ("start_from=jem",)),
    ]
    runs = [
        Run(
            models=(model,),
            name=name,
            settings=settings,
            metrics=("accuracy", "pgd:images=3"),
            seeds=(0, 1),
        )
        for model, name, settings in blocks
    ]
    suite = Suite(name="", title="", datasets=("digits",), runs=tuple(runs))
    plan = make_plan(suite, started=partial(started, store=store))
    check_stored(plan.fits, store)
    turned = dataclasses.replace(plan, cells=plan.cells[::-1])
    earlier = {
        "digits-quick": [],
        "digits-quick+start_from=First": ["digits-quick"],
        "digits-quick+start_from=jem": ["digits-quick+start_from=First"],
    }
    for each in (plan, turned):
        units = {unit.id: unit for unit in works(each, lambda key: False, slots=2) if unit.later}
        assert len(units) == 6
        for unit in units.values():
            before = [(units[id_].fit.recipe, units[id_].fit.seed) for id_ in unit.after]
            assert before == [(recipe, unit.fit.seed) for recipe in earlier[unit.fit.recipe]]
    with pytest.raises(Unavailable, match="starts from the weights"):
        check_stored([fit for fit in plan.fits if fit.recipe.start_from][:1], store)
    assert encode(plan.fits[-1].key)["recipe"] == "digits-quick+start_from=jem"
