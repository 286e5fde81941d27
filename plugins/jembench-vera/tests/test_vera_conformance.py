"""VERA, semi-supervised and refined too, keeps what every model promises."""

from jembench.testing import check_model, parametrize

SMALL = "vera:net=small-4,width=8,latent=4,particles=3,dropout=0.1"


@parametrize(check_model(SMALL))
def test_the_model(check):
    check()


@parametrize(check_model(f"{SMALL},refinement=2,unlabelled=1,p_control=0.1"))
def test_the_model_of_all_options(check):
    check()
