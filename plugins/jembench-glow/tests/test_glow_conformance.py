"""Glow, conditional and not, keeps what every model promises."""

from jembench.testing import check_model, parametrize


@parametrize(check_model("glow:levels=2,steps=2,hidden=16"))
def test_the_conditional_model(check):
    check()


@parametrize(check_model("glow:levels=2,steps=2,hidden=16,conditional=false"))
def test_the_model_without_classes(check):
    check()
