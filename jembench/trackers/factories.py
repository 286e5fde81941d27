"""The trackers that core registers. Their libraries are extras, imported at the first event."""

from typing import Annotated, Literal

from jembench.catalog.options import NotInFiles
from jembench.interfaces import Tracker
from jembench.trackers.base import PerFit, require
from jembench.trackers.mlflow import MLflowRun
from jembench.trackers.wandb import WandbRun


def tensorboard(*, folder: str = "tensorboard") -> Tracker:
    """Event files for TensorBoard, in a folder for each fit.

    `tensorboard --logdir` shows ``folder``.
    """
    from jembench.trackers.tensorboard import TensorBoardRun  # imports NumPy

    require("tensorboard")
    return PerFit(lambda name, about: TensorBoardRun(folder, name, about))


def mlflow(*, uri: str = "", experiment: str = "jembench") -> Tracker:
    """Runs of MLflow, one for each fit.

    ``uri`` is a server or sqlite:///FILE, by default MLFLOW_TRACKING_URI.
    """
    require("mlflow")
    return PerFit(lambda name, about: MLflowRun(uri, experiment, name, about))


def wandb(
    *,
    project: str = "jembench",
    folder: str = ".",
    mode: Annotated[Literal["", "offline", "online"], NotInFiles()] = "",
) -> Tracker:
    """Runs of Weights & Biases, one for each fit, offline by default.

    ``mode`` and WANDB_MODE replace the default; `wandb sync` uploads them.
    """
    require("wandb")
    return PerFit(lambda name, about: WandbRun(project, folder, mode, name, about))
