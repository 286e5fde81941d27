import os
import signal

import pytest

from jembench import stopping
from jembench.errors import StoreError, Unavailable
from jembench.running.measure import measure
from jembench.stopping import Stopped


def fail_after_a_signal(error):
    with stopping.listening():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except Stopped:  # as an import may do
            raise error("in the middle of an import") from None


@pytest.mark.parametrize(("error", "raised"), [(AttributeError, Stopped), (StoreError, StoreError)])
def test_an_error_after_a_signal_is_its_consequence_unless_work_could_not_be_kept(error, raised):
    with pytest.raises(raised):
        fail_after_a_signal(error)


@pytest.mark.parametrize("error", [RuntimeError, SystemExit, Unavailable])
def test_a_metric_that_fails_after_a_signal_has_no_outcome(error):
    class Swallowing:
        def compute(self, evaluation):
            try:
                os.kill(os.getpid(), signal.SIGTERM)
            except Stopped:
                raise error("in the middle of an import") from None

    with pytest.raises(Stopped), stopping.listening():
        measure(Swallowing(), None)
