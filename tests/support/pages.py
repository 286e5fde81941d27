"""The pages of the guides, followed in an empty folder: their files are written, their commands and
snippets are run.

In a page, a block of `bash` is run, line by line of its commands. A block after "In `NAME`:" is the
file of that name. The other blocks of `python` are one script, which is run where the last of them
stands. A comment `<!-- not run: REASON -->` before a block of either language leaves it out. Blocks
of other languages are output.

Every command runs in a fork of one process that has imported torch, since importing it takes longer
than most commands. Trainings are a few iterations, that of a feature network too; toys have few
training images, and metrics are of a few images.
"""

import contextlib
import importlib
import json
import os
import pkgutil
import re
import runpy
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import jembench

BLOCK = re.compile(
    r"In `([\w./-]+\.\w+)`|<!-- not run: (.+?) -->|^```(\S*)\n(.*?)^```", re.MULTILINE | re.DOTALL
)
TINY = {
    "JEMBENCH_SET": "epochs=0.1",
    **{
        f"JEMBENCH_{command}_LIMIT": "50"
        for command in ("RUN", "REPORT", "COMPARE", "FIGURES", "ATTACK")
    },
    "JEMBENCH_ATTACK_IMAGES": "4",
    "JEMBENCH_ATTACK_RESTARTS": "1",
    "JEMBENCH_ATTACK_STEPS": "2",
}
"""Environment variables that make every training and every attack a short one."""

IMPORTED = (
    "matplotlib.backends.backend_agg",
    "scipy.stats",
    "sklearn.datasets",
    "jinja2",
    "PIL.Image",
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
"""`jembench` and `python` as the pages call them: what they do happens in a fork of :func:`serve`.
"""


class Step(NamedTuple):
    """A file to be written (``file``), or a script of bash (``file`` is "")."""

    file: str
    text: str
    language: str


def steps(page):
    """The steps of a page in order; its snippets of Python are one file that is run."""
    found, snippets, place, file, left_out = [], [], 0, "", False
    for name, reason, language, text in BLOCK.findall(page.read_text()):
        if name or reason:
            file, left_out = name or file, bool(reason)
            continue
        if left_out or not (language == "bash" or file or language == "python"):
            pass
        elif file and language != "bash":
            found.append(Step(file, text, language))
        elif language == "bash":
            found.append(Step("", text, language))
        else:
            snippets.append(text)
            place = len(found)
        file, left_out = ("" if language else file), False
    if snippets:
        script = [Step("snippets_of_this_page.py", "\n".join(snippets), "python")]
        found[place:place] = [*script, Step("", "python snippets_of_this_page.py\n", "bash")]
    return found


def follow(page, folder, programs, offline=lambda line: line, **environment):
    """Follow a page in an empty folder; gives what each line of its commands printed, by line.

    Args:
        programs: the folder of :func:`server`.
        offline: changes a command that would fetch something.
        environment: more environment variables.

    Raises:
        AssertionError: if a command fails.
    """
    script, printed = ["set -e"], {}
    variables = TINY | {"COLUMNS": "200"} | environment
    for step in steps(page):
        if step.file:
            script.append(
                f"mkdir -p $(dirname {step.file}); cat > {step.file} "
                f"<<'END'\n{_small(step.text)}END"
            )
        else:
            lines = re.sub(r"\\\n\s*", " ", step.text).splitlines()
            script += [f"echo '>>>' {json.dumps(line)}\n{_small(offline(line))}" for line in lines]
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)],
        cwd=folder,
        env=os.environ | variables | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    for part in done.stdout.split(">>> ")[1:]:
        command, _, output = part.partition("\n")
        printed[command] = output
    return printed


def runs_without_a_row(printed):
    """Of what :func:`follow` gives: the runs whose table lacks a model that they name."""
    return [
        command
        for command, output in printed.items()
        if (models := re.search(r"^jembench run .*--models \"?([^\" ]+)", command))
        if not all(
            model.partition("=")[0] in output for model in models[1].replace("$fit", "").split(",")
        )
    ]


def _small(text):
    """Return commands, files and snippets with little training where they say how much, and in one
    process.
    """
    return re.sub(r" -j \d+\b", "", re.sub(r"(\bepochs\"?\s*[=:]\s*)[\d.]+", r"\g<1>0.1", text))


@contextlib.contextmanager
def server(folder):
    """A folder of programs whose commands run in forks of a process that has imported what they
    need.
    """
    address = f"\0{folder}"
    for name in ("jembench", "python"):
        program = folder / name
        program.write_text(CLIENT.format(python=sys.executable, address=address))
        program.chmod(0o755)
    with subprocess.Popen(
        [sys.executable, __file__, address[1:]], stdout=subprocess.PIPE
    ) as process:
        try:
            process.stdout.readline()  # it listens
            yield folder
        finally:
            process.kill()


def serve(address):
    """Run the commands of clients, one after the other, each in a fork."""
    ours = [module.name for module in pkgutil.walk_packages(jembench.__path__, "jembench.")]
    for name in (*IMPORTED, *ours):
        # torchvision imports the compiler
        if name not in ("jembench.__main__", "jembench.data.torchvision_sets"):
            importlib.import_module(name)
    importlib.import_module("jembench.metrics.features").RECIPE["iterations"] = 20
    importlib.import_module("jembench.data.toys").SIZES["train"] = 200
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"\0{address}")
    listener.listen()
    print("ready", flush=True)
    while True:
        client, _ = listener.accept()
        head, streams, *_ = socket.recv_fds(client, 8, 3)
        call = b""
        while len(call) < int.from_bytes(head):
            call += client.recv(1 << 20)
        if (child := os.fork()) == 0:
            listener.close()
            for stream, number in zip(streams, (0, 1, 2), strict=True):
                os.dup2(stream, number)
            run(*json.loads(call))
        for stream in streams:
            os.close(stream)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with contextlib.suppress(BrokenPipeError):
            client.sendall(str(code if code >= 0 else 128 - code).encode())
        client.close()


def run(arguments, folder, environment):
    """Be the command, and end."""
    code = 1
    try:
        os.chdir(folder)
        os.environ.clear()
        os.environ |= environment
        sys.argv = arguments
        sys.path[0:1] = ["", *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
        signal.set_wakeup_fd(-1)
        if Path(arguments[0]).name == "python":
            sys.argv = arguments[1:]
            runpy.run_path(arguments[1], run_name="__main__")
            code = 0
        else:
            from jembench.cli.main import main

            code = main()
    except BaseException as error:
        if not isinstance(error, SystemExit):
            sys.excepthook(type(error), error, error.__traceback__)
        code = error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 1
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
        os._exit(code)


if __name__ == "__main__":
    serve(sys.argv[1])
