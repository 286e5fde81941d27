"""The pages of the guides, followed in an empty folder: their files are written, their commands and
snippets are run.

In a page, a block of `bash` is run, line by line of its commands. A block after "In `NAME`:" is the
file of that name. The other blocks of `python` are one script, which is run where the last of them
stands. A comment `<!-- not run: REASON -->` before a block of either language leaves it out. Blocks
of other languages are output.

Every command runs in a fork, see :mod:`forks`. Trainings are a few iterations, that of a feature
network too; toys have few training images, and metrics are of a few images.
"""

import json
import os
import re
import subprocess
from typing import NamedTuple

BLOCK = re.compile(
    r"In `([\w./-]+\.\w+)`|<!-- not run: (.+?) -->|^```(\S*)\n(.*?)^```", re.MULTILINE | re.DOTALL
)
TINY = {
    "JEMBENCH_TESTS_SMALL": "1",
    "JEMBENCH_SET": "epochs=0.1",
    "JEMBENCH_FIGURES_FORMATS": "svg",
    **{
        f"JEMBENCH_{command}_LIMIT": "50"
        for command in ("RUN", "REPORT", "COMPARE", "CHECK", "FIGURES", "ATTACK")
    },
    "JEMBENCH_ATTACK_IMAGES": "4",
    "JEMBENCH_ATTACK_RESTARTS": "1",
    "JEMBENCH_ATTACK_STEPS": "2",
}
"""Environment variables that make every training and every attack a short one."""


class Step(NamedTuple):
    """A file to be written (``file``), or a script of bash (``file`` is "")."""

    file: str
    text: str
    language: str


def steps(page):
    """The steps of a page in order; its snippets of Python are one file that is run."""
    steps_of_page, snippets, place, file, left_out = [], [], 0, "", False
    for name, reason, language, text in BLOCK.findall(page.read_text()):
        if name or reason:
            file, left_out = name or file, bool(reason)
            continue
        if left_out or not (language == "bash" or file or language == "python"):
            pass
        elif file and language != "bash":
            steps_of_page.append(Step(file, text, language))
        elif language == "bash":
            steps_of_page.append(Step("", text, language))
        else:
            snippets.append(text)
            place = len(steps_of_page)
        file, left_out = ("" if language else file), False
    if snippets:
        script = [Step("snippets_of_this_page.py", "\n".join(snippets), "python")]
        steps_of_page[place:place] = [
            *script,
            Step("", "python snippets_of_this_page.py\n", "bash"),
        ]
    return steps_of_page


def follow(page, folder, programs, offline=lambda line: line, **environment):
    """Follow a page in an empty folder; gives what each line of its commands printed, by line.

    Args:
        programs: the folder of :func:`forks.programs`.
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
        if (models := re.search(r"^jembench run .*--models [\"']?([^\"' ]+)", command))
        if not all(
            re.split(r":\w+=|=", model)[0] in output
            for model in models[1].replace("$fit", "").split(",")
        )
    ]


def _small(text):
    """Return commands, files and snippets with little training where they say how much, and in one
    process.
    """
    # a command with --set does not read JEMBENCH_SET
    short = " --set epochs=0.1 --set least_iterations=0"
    text = text.replace(" --set start_from", f"{short} --set start_from")
    return re.sub(r" -j \d+\b", "", re.sub(r"(\bepochs\"?\s*[=:]\s*)[\d.]+", r"\g<1>0.1", text))
