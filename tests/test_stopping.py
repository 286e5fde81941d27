import os
import signal

import pytest

from jembench import stopping
from jembench.errors import PluginError, StoreError, Unavailable
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


def exits():
    os._exit(0)


def interrupts():
    raise KeyboardInterrupt


@pytest.fixture(
    params=[signal.default_int_handler, signal.SIG_IGN], ids=["foreground", "background"]
)
def answer_to_interrupts(request):
    """The handler of SIGINT: shells let background processes of a script ignore it."""
    before = signal.signal(signal.SIGINT, request.param)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("answer_to_interrupts")
@pytest.mark.parametrize("end", [exits, interrupts])
def test_code_of_a_plugin_ends_neither_the_program_nor_the_run(end):
    leave = os._exit
    with (
        stopping.listening(),
        pytest.raises(PluginError, match=r"^It ends the program"),
        stopping.contained("It"),
    ):
        end()
    assert os._exit is leave


def test_an_interrupt_by_the_user_ends_the_run_also_where_it_is_contained():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt), stopping.listening(), stopping.contained("It"):
        os.kill(os.getpid(), signal.SIGINT)
    # in a program of the user's own
    with pytest.raises(KeyboardInterrupt), stopping.contained("It"):
        interrupts()
    signal.signal(signal.SIGINT, before)


def test_a_forked_process_may_leave():
    with stopping.listening():
        child = os.fork()
        if not child:
            os._exit(7)
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7
