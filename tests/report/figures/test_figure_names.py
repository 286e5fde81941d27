"""Names of figures: readable, safe, and never the same for two."""

from jembench.report.figures import base
from jembench.store.outcome import FitKey


def fit(model="jem", dataset="digits", recipe="digits", seed=0):
    return FitKey(model=model, dataset=dataset, recipe=recipe, seed=seed, id="0")


def test_a_name_has_the_model_and_the_seed_where_there_is_one():
    assert base.stem("auroc", [fit(), fit("baseline")]).startswith("auroc-digits-s0-")
    assert base.stem("seeds-fid", [fit(seed=0), fit(seed=1)]).startswith("seeds-fid-digits-jem-")


def test_titles():
    assert base.title_of(fit(seed=3)) == "jem on digits, seed 3"
    assert base.title_of(fit(recipe="digits+epochs=5")) == "jem (digits+epochs=5) on digits, seed 0"
    assert base.model_of(fit(dataset="imagefolder:root=/a", recipe="paper")) == "jem"


def test_a_display_name_that_one_recipe_alone_has_tells_the_recipe():
    names = {("jem", "paper"): "JEM", ("jem", "digits+epochs=5"): "JEM, short"}
    assert [base.model_of(fit(recipe=recipe), names) for _, recipe in names] == ["JEM", "JEM, short"]
    of_all = dict.fromkeys([("jem", "digits"), ("jem", "digits+epochs=5")], "JEM")
    assert [base.model_of(fit(recipe=recipe), of_all) for _, recipe in of_all] == ["JEM", "JEM (digits+epochs=5)"]


def test_what_a_name_cannot_say_is_in_its_hash():
    models = ["jem", "jem:net=a b", "jem:net=a/b", "x" * 300, "x" * 301, "jem:net=a-b", "jem:net=a:b"]
    stems = [base.stem("ood", [fit(model)]) for model in models] + [base.stem("ood", [fit()], 50)]
    assert len(set(stems)) == len(models) + 1
    assert all(len(stem) < 120 and "/" not in stem for stem in stems)
    assert stems[:-1] == [base.stem("ood", [fit(model)]) for model in models]
