"""IGEBM, conditional and not, keeps what every model promises."""

from jembench.testing import check_model, parametrize


@parametrize(check_model("igebm:net=small,width=4"))
def test_the_conditional_model(check):
    check()


@parametrize(check_model("igebm:net=small,width=4,conditional=false"))
def test_the_model_without_classes(check):
    check()
