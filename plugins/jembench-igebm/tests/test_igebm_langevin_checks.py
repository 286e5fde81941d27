"""The chains hold to what all samplers must hold to."""

from jembench.interfaces import DataSpec
from jembench.testing import check_sampler, parametrize

OTHER = DataSpec(name="colours", shape=(3, 4, 6), num_classes=2, bounds=(0.0, 1.0))


@parametrize(check_sampler("igebm-langevin:buffer=100"))
def test_on_digits(check):
    check()


@parametrize(check_sampler("igebm-langevin:buffer=100", OTHER))
def test_on_other_images(check):
    check()
