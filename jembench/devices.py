"""The device that work is done on."""

from __future__ import annotations

import torch

from jembench.errors import SpecError, Unavailable


def resolve(name: str) -> torch.device:
    """``auto`` (the first GPU there is, else the CPU) or a device's name.

    Raises:
        SpecError: if the text names no device.
        Unavailable: if the device is not there.
    """
    if name == "auto":
        return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise SpecError(f"{name!r} is not a device. Write cpu, cuda, cuda:1 ... or auto with --device.") from error
    if device.type == "cuda":
        count = torch.cuda.device_count()
        if (device.index or 0) >= count:
            raise Unavailable(
                f"There is no device {name}: this machine has {count} CUDA devices that torch {torch.__version__} can "
                "use. Use --device cpu, or see what `jembench doctor` says of the driver."
            )
        return torch.device("cuda", device.index or 0)
    return device
