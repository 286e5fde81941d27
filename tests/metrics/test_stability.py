import pytest

from jembench.errors import NotApplicable
from jembench.interfaces.evaluation import Stability
from jembench.metrics.training import StabilityOfTraining


def measured(fake, *stability):
    return StabilityOfTraining().compute(
        fake.Evaluation(stability=Stability("random-starts@3", *stability))
    )


def test_a_training_that_never_diverged_was_stable_for_all_its_iterations(fake):
    measurement = measured(fake, 1462, None, "", (), "")
    assert {name: value[:3] for name, value in measurement.values.items()} == {
        "stable-iterations": (1462, None, None),
        "interventions": (0, None, None),
    }


def test_the_first_divergence_and_all_remedies_are_counted(fake):
    measurement = measured(
        fake, 500, 320, "loss was nan", ("seed", "steps", "rate", "rate"), "20 sampling steps"
    )
    assert (
        measurement.values["stable-iterations"].value,
        measurement.values["interventions"].value,
    ) == (
        320,
        4,
    )


def test_where_nobody_looked_there_is_no_number(fake):
    with pytest.raises(NotApplicable, match=r"guard\.mode=off.*reports no energies"):
        StabilityOfTraining().compute(fake.Evaluation())
