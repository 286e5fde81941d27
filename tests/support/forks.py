"""Commands that run in forks of one process, which has imported torch and the rest already.

To import them takes longer than most commands. The programs ``python`` and ``jembench`` of a folder
stand for the real ones: each sends its arguments, its folder, its environment and its streams to
the process of :func:`serve`, and ends with the exit code of the fork, which no signal reaches.
"""

import contextlib
import fcntl
import importlib
import json
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import sys
import time
from pathlib import Path

import jembench

IMPORTED = (
    "matplotlib.backends.backend_agg",
    "scipy.stats",
    "sklearn.datasets",
    "jinja2",
    "PIL.Image",
    "torch.distributed.launcher.api",
)
"""Modules beside jembench's own that most commands need and that take long to import."""

CLIENT = """#!{python} -IS
import json, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
call = json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(server, [len(call).to_bytes(8) + call], [0, 1, 2])
sys.exit(int(server.recv(9)))
"""


def programs(folder):
    """Write the programs to a folder, and start their server if no process has done so.

    The server ends with the process that hands out the tests.
    """
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / "python").exists():
            return folder
        hands_out = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
        server = os.posix_spawn(
            sys.executable,
            [sys.executable, __file__, str(folder), str(hands_out)],
            os.environ | {"OMP_NUM_THREADS": "1"},
            setsid=True,
        )
        while not (folder / "python").exists():
            assert os.waitpid(server, os.WNOHANG) == (0, 0), "the server has ended"
            time.sleep(0.05)
    return folder


def serve(folder, owner):
    """Run the commands of clients, each in a fork, until the process ``owner`` has ended."""
    ours = [module.name for module in pkgutil.walk_packages(jembench.__path__, "jembench.")]
    for name in (*IMPORTED, *ours):
        # torchvision imports the compiler
        if name not in ("jembench.__main__", "jembench.data.torchvision_sets"):
            importlib.import_module(name)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"\0{folder}")
    listener.listen()
    for name in ("jembench", "python"):
        program = folder / f"{name}.new"
        program.write_text(CLIENT.format(python=sys.executable, address=f"\0{folder}"))
        program.chmod(0o755)
        program.rename(folder / name)
    events = selectors.DefaultSelector()
    events.register(listener, selectors.EVENT_READ)
    while Path(f"/proc/{owner}").exists():
        for ready, _ in events.select(timeout=1):
            if ready.fileobj is listener:
                client, call, streams = receive(listener)
                if (child := os.fork()) == 0:
                    listener.close()
                    for stream, number in zip(streams, (0, 1, 2), strict=True):
                        os.dup2(stream, number)
                    run(*call)
                for stream in streams:
                    os.close(stream)
                end = os.pidfd_open(child)
                events.register(end, selectors.EVENT_READ, (child, client))
            else:
                events.unregister(ready.fileobj)
                os.close(ready.fileobj)
                answer(*ready.data)


def receive(listener):
    """Return a client, its call (arguments, folder, environment) and its streams."""
    client, _ = listener.accept()
    head, streams, *_ = socket.recv_fds(client, 8, 3)
    call = b""
    while len(call) < int.from_bytes(head):
        call += client.recv(1 << 20)
    return client, json.loads(call), streams


def answer(child, client):
    """Send a client the exit code of its command, which has ended."""
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with contextlib.suppress(BrokenPipeError), client:
        client.sendall(str(code if code >= 0 else 128 - code).encode())


def run(arguments, folder, environment):
    """Be the command, and end."""
    code = 1
    try:
        os.chdir(folder)
        os.environ.clear()
        os.environ |= environment
        if "JEMBENCH_DRIVER" in environment:  # a worker ends with its parent
            os.environ["JEMBENCH_DRIVER"] = str(os.getppid())
        if "JEMBENCH_TESTS_SMALL" in environment:
            importlib.import_module("jembench.metrics.features").RECIPE["iterations"] = 20
            importlib.import_module("jembench.data.toys").SIZES["train"] = 200
        sys.stdin = os.fdopen(0, closefd=False)
        sys.stdout = os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
        sys.path[0:1] = ["", *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
        signal.set_wakeup_fd(-1)
        code = python(arguments[1:]) if Path(arguments[0]).name == "python" else command(arguments)
    except BaseException as error:
        if not isinstance(error, SystemExit):
            sys.excepthook(type(error), error, error.__traceback__)
        code = error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 1
        if isinstance(error, SystemExit) and error.code is None:
            code = 0
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
        os._exit(code)


def command(arguments):
    """Run ``jembench``; return its exit code."""
    from jembench.cli.main import main

    sys.argv = arguments
    return main()


def python(arguments):
    """Run a script, a module after ``-m`` or code after ``-c``; return the exit code."""
    while arguments[0] in ("-P", "-u"):
        if arguments.pop(0) == "-P":
            sys.path.remove("")
    if arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        exec(arguments[1], {"__name__": "__main__"})
        return 0
    if arguments[0] != "-m":
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name="__main__")
        return 0
    sys.argv = arguments[1:]
    if arguments[1] == "jembench":
        return command(sys.argv)
    runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    return 0


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]))
