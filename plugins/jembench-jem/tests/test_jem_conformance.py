"""JEM and its ablation keep what every model promises."""

from jembench.testing import check_model, parametrize


@parametrize(check_model("jem:net=small-4"))
def test_jem(check):
    check()


@parametrize(check_model("jem-factored:net=small-4"))
def test_the_factored_ablation(check):
    check()
