"""Names of figures: readable, safe, and never the same for two."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from jembench.catalog.spec import Spec
from jembench.report.figures import results
from jembench.store.outcome import FitKey


def fit(model="jem", dataset="digits", recipe="digits", seed=0):
    return FitKey(model=model, dataset=dataset, recipe=recipe, seed=seed, id="0")


def test_plain_names():
    assert results.stem("auroc", [fit(), fit("baseline")]) == "auroc-digits-jem-baseline-s0"
    assert results.stem("ood", [fit()], limit=50) == "ood-digits-jem-s0-limit50"
    assert results.stem("seeds-fid", [fit(seed=0), fit(seed=1)]) == "seeds-fid-digits-jem"
    assert results.stem("ood", [fit(recipe="paper")]) == "ood-digits-jem-paper-s0"


def test_titles():
    assert results.title_of(fit(seed=3)) == "jem on digits, seed 3"
    assert results.title_of(fit(recipe="digits+epochs=5")) == "jem (digits+epochs=5) on digits, seed 0"
    assert results.model_of(fit(dataset="imagefolder:root=/a", recipe="paper")) == "jem"


def test_a_name_that_two_of_a_model_s_recipes_have_is_followed_by_the_recipe():
    names = {("jem", "digits"): "JEM", ("jem", "paper"): "JEM", ("jem", "digits+epochs=5"): "JEM, short"}
    found = [results.model_of(fit(recipe=recipe), names) for _, recipe in names]
    assert found == ["JEM (digits)", "JEM (paper)", "JEM, short"]
    of_all = dict.fromkeys(names, "JEM")
    assert [results.model_of(fit(recipe=recipe), of_all) for recipe in ("digits", "paper")] == ["JEM", "JEM (paper)"]


def test_what_a_name_cannot_say_is_in_its_hash():
    models = ["jem", "jem:net=a b", "jem:net=a/b", "x" * 300, "x" * 301, "jem:net=a-b", "jem:net=a:b"]
    stems = [results.stem("ood", [fit(model)]) for model in models]
    assert len(set(stems)) == len(models)
    assert all(stem.endswith("-s0") and len(stem) < 120 and "/" not in stem for stem in stems)
    assert stems == [results.stem("ood", [fit(model)]) for model in models]


@given(st.lists(st.text(max_size=40), min_size=2, max_size=4, unique=True))
def test_models_of_any_name_have_names_of_their_own(models):
    specs = [str(Spec("jem", (("net", model),))) for model in models]
    stems = [results.stem("ood", [fit(text)]) for text in specs]
    for (one, a), (other, b) in itertools.combinations(zip(models, stems, strict=True), 2):
        assert a != b or one.replace(",", "-") == other.replace(",", "-")
