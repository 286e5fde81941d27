"""The executor on a real Ray: two nodes of this machine with a core each. Most workers are fake,
and need no torch.
"""

import dataclasses
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import fake_worker
import pytest
from executor_checks import check_executor
from executor_sessions import Session, is_alive

# loopback only, read when Ray is imported
os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")

import jembench
from jembench import stopping
from jembench.plugin import SpecError, Unavailable, resolve
from jembench.testing import parametrize

make = pytest.importorskip(
    "jembench_ray", reason="jembench-ray is not installed: tox -e plugins"
).ray
ray = pytest.importorskip("ray")
task = pytest.importorskip("jembench_ray.task")

PATIENCE = 40.0


@pytest.fixture(scope="module", autouse=True)
def cluster():
    """Start two nodes with a core each, which RAY_ADDRESS names."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        # a short path, for sockets
        folder = tempfile.mkdtemp(prefix="jembench-tests-ray-", dir="/tmp")
        patch.setenv("RAY_TMPDIR", folder)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_worker_niceness", "0")  # else other processes of the machine come first
        cluster = Cluster()
        add_node(cluster)
        add_node(cluster)
        patch.setenv("RAY_ADDRESS", cluster.address)
        yield cluster
        ray.shutdown()  # whichever test came last
        cluster.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


def add_node(cluster, **more):
    size = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
    options = {**size, "node_ip_address": "127.0.0.1", **more}
    return cluster.add_node(include_dashboard=False, **options)


@pytest.fixture
def session(tmp_path):
    """Open an executor with fake workers."""
    session = Session(make(retries=1), tmp_path)
    before = signal.getsignal(signal.SIGTERM)
    session.executor.open(session.driver)
    assert signal.getsignal(signal.SIGTERM) is before
    yield session
    session.executor.close()


def until(condition):
    """Wait for something, and return it."""
    end = time.monotonic() + PATIENCE
    while not (endings_by_unit := condition()):
        assert time.monotonic() < end, "it never came"
        time.sleep(0.05)
    return endings_by_unit


def starts(folder, count=1):
    """Return the processes of the first starts of units, in order."""
    path = folder / "trace"
    until(lambda: path.exists() and len(path.read_text().splitlines()) >= count)
    processes = []
    for line in path.read_text().splitlines():
        unit, pid = line.split()
        processes.append((unit, int(pid)))
    return processes


def parent(pid):
    status = Path(f"/proc/{pid}/stat").read_text()
    _, _, after_name = status.rpartition(")")
    return int(after_name.split()[1])


def release(folder, *units):
    """Let go on those that wait until these units have begun."""
    for unit in units:
        fake_worker.note(folder, unit)


@parametrize(check_executor("ray"))
def test_conformance(check):
    check()


def test_the_cluster_has_room_for_two_units_and_they_leave_no_log(session):
    assert session.executor.slots == 2
    assert session.executor.here is True
    session.endings(session.submit(*["done"] * 3))
    assert not list(session.folder.glob("store/works/*.log"))


def test_a_unit_for_which_no_node_has_room_is_refused(session):
    (job,) = session.jobs("done")
    session.executor.submit([dataclasses.replace(job, gpus=2)])
    ended = session.endings([job])[job.id]
    assert ended.how == "refused"
    assert "No node of the Ray cluster has 2 CPUs. Ask for less" in ended.text


@pytest.mark.parametrize("killed", ["worker", "Ray worker"])
def test_what_is_killed_is_tried_again(session, killed):
    jobs = session.submit("meets 60 go")
    ((_, pid),) = starts(session.folder)
    above = parent(pid)
    os.kill(pid if killed == "worker" else above, signal.SIGKILL)
    until(lambda: not is_alive(pid))
    starts(session.folder, 2)
    release(session.folder, "go")
    assert session.endings(jobs)[jobs[0].id].how == "done"


def test_a_lost_unit_and_a_refused_one_are_told_with_their_host_and_log(session):
    lost, refused = session.submit("dies", "refused for it has other code")
    endings_by_unit = session.endings([lost, refused])
    assert "with SIGKILL. The unit was tried 2 times." in endings_by_unit[lost.id].text
    assert endings_by_unit[lost.id].host
    log = Path(endings_by_unit[lost.id].log).read_text()
    assert log.splitlines() == [f"{lost.id} begins"] * 2
    log = Path(endings_by_unit[refused.id].log).read_text()
    assert log.splitlines() == [f"{refused.id} begins"]


def test_units_of_a_lost_node_are_carried_out_elsewhere(cluster, session):
    jobs = session.submit("meets 60 go", "meets 60 go")
    before = starts(session.folder, 2)
    (node,) = cluster.worker_nodes
    raylet = node.all_processes["raylet"][0].process.pid
    of_node = [(unit, pid) for unit, pid in before if parent(parent(pid)) == raylet]
    ((lost, pid),) = of_node
    above = parent(pid)
    os.kill(raylet, signal.SIGKILL)
    until(lambda: not is_alive(pid) and not is_alive(above))
    cluster.remove_node(node)
    add_node(cluster)
    assert starts(session.folder, 3)[2][0] == lost
    release(session.folder, "go")
    endings = session.endings(jobs).values()
    assert {ended.how for ended in endings} == {"done"}


def test_two_processes_get_two_gpus_of_one_node_and_are_started_by_torchrun(cluster, tmp_path):
    node = add_node(cluster, num_gpus=2)
    session = Session(make(cpus=0.5), tmp_path)
    try:
        session.executor.open(session.driver)
        assert session.executor.slots == 2
        (job,) = session.jobs("meets 60 go")
        session.executor.submit([dataclasses.replace(job, gpus=2)])
        (_, first), (_, second) = starts(tmp_path, 2)
        devices = {variables(pid)["CUDA_VISIBLE_DEVICES"] for pid in (first, second)}
        assert devices == {"0,1"}
        assert parent(first) == parent(second)
        raylet = node.all_processes["raylet"][0].process.pid
        assert parent(parent(parent(first))) == raylet
        release(tmp_path, "go")
        assert session.endings([job])[job.id].how == "done"
    finally:
        session.executor.close()
        cluster.remove_node(node)


def variables(pid):
    pairs = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)


def test_the_exception_of_a_signal_comes_through(session):
    class Stopped(BaseException):
        pass

    def stop(*_):
        raise Stopped

    session.submit("sleeps")
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(Stopped):
            session.executor.ended(2)
    finally:
        signal.signal(signal.SIGALRM, before)


PROGRAM = """
import sys, time
from pathlib import Path
from executor_sessions import Session
from jembench_ray import ray

session = Session(ray(address="local"), Path(sys.argv[1]))
assert session.executor.here
session.executor.open(session.driver)
import ray
print(ray.nodes()[0]["NodeManagerAddress"], flush=True)
session.submit("sleeps")
time.sleep(60)
"""


def test_a_ray_of_its_own_is_reached_from_this_machine_alone_and_dies_with_the_driver(tmp_path):
    # else Ray writes one to the user's home
    environment = {**os.environ, "RAY_AUTH_TOKEN": "0" * 64}
    del environment["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"]  # the executor sets it
    environment["PYTHONPATH"] = str(Path(fake_worker.__file__).parent)
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        address = process.stdout.readline().strip()
        ((_, pid),) = starts(tmp_path)
        pids = [pid, *descendants(process.pid)]
        process.kill()
    assert address == "127.0.0.1"
    until(lambda: not [pid for pid in pids if is_alive(pid) and not is_agent(pid)])


def descendants(pid):
    numbers = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    children = [number for number in numbers if is_alive(number) and parent(number) == pid]
    below = list(children)
    for child in children:
        below += descendants(child)
    return below


def is_agent(pid):
    """Return whether a process is an agent of Ray.

    It takes a minute to see that the rest of Ray was killed.
    """
    return b"Agent" in Path(f"/proc/{pid}/cmdline").read_bytes()


def test_without_a_shared_store_the_results_are_the_same(tmp_path, monkeypatch):
    unit = task.Unit

    def elsewhere(**options):
        return unit(**{**options, "store": str(tmp_path / "elsewhere")})

    monkeypatch.setattr(task, "Unit", elsewhere)
    asked = {
        "models": "baseline:net=small-2",
        "metrics": "pgd:restarts=1,steps=2,norm=linf",
        "limit": 20,
    }
    asked |= {"settings": {"epochs": 1}, "progress": False}
    values = []
    for executor in ("ray", "local"):
        result = jembench.run("hybrid", **asked, store=tmp_path / executor, executor=executor)
        values.append([(value.label, value.value, value.low, value.high) for value in result])
    apart, alone = values
    assert apart == alone
    assert not list((tmp_path / "ray" / "works").iterdir())


def test_the_executors_of_the_readme_are_made():
    commands = (Path(__file__).parents[1] / "README.md").read_text()
    specs = re.findall(r"--executor (\S+)`?", commands)
    assert len(specs) == 4
    for spec in specs:
        resolve("executors", spec.rstrip("`")).make()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"address": "ray://head:10001"}, "Ray client"),
        ({"address": "head"}, "host:port, auto or local"),
        ({"gpus": 1.5}, "whole number"),
    ],
)
def test_options_that_cannot_be_are_refused(options, message):
    with pytest.raises(SpecError, match=message):
        make(**options)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("gpus=nan", "finite number"),
        ("gpus=-1", "at least 0"),
        ("cpus=0", "at least 0.01"),
        ("retries=-1", "at least 0"),
    ],
)
def test_options_out_of_range_are_refused(option, message):
    with pytest.raises(SpecError, match=message):
        resolve("executors", f"ray:{option}")


def test_a_cluster_that_cannot_be_used_is_named_with_the_remedy(monkeypatch):
    ray.shutdown()  # a Ray that the program has started would be used
    with pytest.raises(Unavailable, match=r"127.0.0.1:1 cannot be used: .*ray:address=local"):
        _ = make(address="127.0.0.1:1").slots
    with monkeypatch.context() as patch:
        patch.setattr(
            ray,
            "init",
            lambda **_: (_ for _ in ()).throw(ray.exceptions.AuthenticationError("no token")),
        )
        with pytest.raises(
            Unavailable, match=r"cannot be used: no token.*RAY_AUTH_MODE=token with RAY_AUTH_TOKEN"
        ):
            _ = make().slots
    monkeypatch.setattr(ray, "__version__", "2.1.0")
    with pytest.raises(Unavailable, match=r"Version mismatch.*install its versions"):
        _ = make().slots


def test_ray_s_answer_to_a_signal_while_it_connects_is_that_signal(monkeypatch):
    monkeypatch.setattr(ray, "init", lambda **_: (_ for _ in ()).throw(SystemExit(0)))
    executor = make(address="local")
    with pytest.raises(stopping.Stopped), stopping.listening():
        _ = executor.slots
