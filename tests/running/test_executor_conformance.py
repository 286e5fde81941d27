from executor_checks import check_executor

from jembench.testing import parametrize


@parametrize(check_executor("local"))
def test_local(check):
    check()


@parametrize(check_executor("processes:jobs=2"))
def test_processes(check):
    check()
