"""The peak memory of JEM training, ours or the textbook's, each in a process of its own.

On a GPU it is all that was allocated there. On the CPU it is the process's peak beyond what it had with its modules,
the images and the model: by the high-water mark of its own memory, since ``ru_maxrss`` begins, on Linux, with that of
the process that started it.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Literal

import torch
from contests import Setting, toy_images

from jembench.errors import Unavailable

ITERATIONS = 2  # the first makes the optimiser's state, the second needs it beside all else
STATUS = Path("/proc/self/status")


def peak(side: Literal["textbook", "ours"], setting: Setting) -> int:
    """Bytes.

    Raises:
        Unavailable: where the system does not tell.
    """
    if setting.place.type == "cpu" and not STATUS.exists():
        raise Unavailable(f"The peak memory of a process is read from {STATUS}, and this system has none.")
    short = dataclasses.replace(setting, steps=min(setting.steps, 2))  # a longer chain needs no more
    arguments = [side, str(torch.get_num_threads()), json.dumps(dataclasses.asdict(short))]
    child = subprocess.run([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True, check=True)
    return int(child.stdout)


def main(side: str, threads: str, setting: str) -> None:
    """Measure one side in this process, and print the bytes."""
    torch.set_num_threads(int(threads))
    place = Setting(**json.loads(setting))
    toy_images()
    model = place.model("jem")
    if side == "textbook":
        import torchvision  # noqa: F401 - its modules are not what is measured
    before = _high_water() if place.place.type == "cpu" else 0
    training = place.trainer(model) if side == "ours" else place.jem_training(model.net)
    for _ in range(ITERATIONS):
        training.iterate()
    after = _high_water() if place.place.type == "cpu" else torch.cuda.max_memory_allocated(place.place)
    print(after - before)


def _high_water() -> int:
    (line,) = [line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM:")]
    return 1024 * int(line.split()[1])


if __name__ == "__main__":
    main(*sys.argv[1:])
