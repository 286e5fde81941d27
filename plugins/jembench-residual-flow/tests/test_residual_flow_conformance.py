"""Residual flows keep what every model promises, with classes and without."""

from jembench.testing import check_model, parametrize


@parametrize(check_model("residual-flow:levels=1,blocks=1,hidden=4"))
def test_with_classes(check):
    check()


@parametrize(check_model("residual-flow:levels=2,blocks=1,hidden=4,conditional=false"))
def test_without_classes(check):
    check()
