"""A worker that counts: ``python -m jembench FOLDER ID...``, with the ids on stdin if the one id is ``-``.

An id says what the unit does: ``count-20-a`` hashes 20 times, at a pace of 20 a second, and writes the hash. It saves
how far it is when it is asked to stop, and goes on from there. ``die-2-b`` kills its worker the first two times.
``refused-0-c`` is refused, ``failed-0-d`` fails.
"""

import hashlib
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

stopped = False


def stop(*_):
    global stopped
    stopped = True


def carry_out(unit, folder):
    """How a unit of work ends."""
    kind, number, _ = unit.split("-")
    with (folder / f"{unit}.starts").open("a") as starts:
        print(os.getpid(), os.environ.get("SLURM_JOB_ID"), os.environ.get("SLURM_JOB_PARTITION"), file=starts)
    if kind in ("refused", "failed"):
        return kind, "This worker has other code."
    if kind == "die":
        if len((folder / f"{unit}.starts").read_text().splitlines()) <= int(number):
            os.kill(os.getpid(), signal.SIGKILL)
        return "done", ""
    checkpoint = folder / f"{unit}.json"
    done, value = json.loads(checkpoint.read_text()) if checkpoint.exists() else (0, unit)
    while done < int(number) and not stopped:
        time.sleep(0.05)
        done, value = done + 1, hashlib.sha256(value.encode()).hexdigest()
    checkpoint.write_text(json.dumps((done, value)))
    return ("done" if done == int(number) else "stopped"), ""


def main(folder, ids):
    """Carry out units; each that has ended is a line on stdout."""
    signal.signal(signal.SIGTERM, stop)
    print("The worker has started.", file=sys.stderr, flush=True)
    for unit in iter(sys.stdin.readline, "") if ids == ["-"] else ids:
        how, text = carry_out(unit.strip(), Path(folder))
        print(json.dumps({"id": unit.strip(), "how": how, "text": text, "host": socket.gethostname()}), flush=True)
        if stopped:
            break


main(sys.argv[1], sys.argv[2:])
