"""What a plugin may import of jembench beside :mod:`jembench.interfaces`, and :mod:`jembench.testing` in its tests.

Importing this module imports no torch: what needs torch is imported when its name is first asked for. So a factory's
module may use it at the top, and `jembench list` stays fast. Everything else in jembench may change without notice;
what is here changes only with :data:`jembench.interfaces.API`.
"""

from __future__ import annotations

import pkgutil
from typing import TYPE_CHECKING, Any

from jembench.catalog.limits import Size as Size
from jembench.catalog.options import added_later as added_later
from jembench.catalog.options import content_of as content_of
from jembench.catalog.options import convert as convert
from jembench.catalog.options import incidental as incidental
from jembench.catalog.options import only_with as only_with
from jembench.catalog.options import pretrained as pretrained
from jembench.catalog.options import takes as takes
from jembench.catalog.registry import resolve as resolve
from jembench.errors import CheckpointError as CheckpointError
from jembench.errors import Diverged as Diverged
from jembench.errors import NotApplicable as NotApplicable
from jembench.errors import PartDone as PartDone
from jembench.errors import SpecError as SpecError
from jembench.errors import Unavailable as Unavailable
from jembench.metrics.base import Estimate as Estimate
from jembench.metrics.base import Metric as Metric
from jembench.metrics.base import mean as mean
from jembench.metrics.base import share as share
from jembench.metrics.ood_scores import OfPrediction as OfPrediction
from jembench.models.nets.names import least_net as least_net
from jembench.sampling.factories import least_buffer as least_buffer

if TYPE_CHECKING:
    from jembench import seeds as seeds
    from jembench.attacks.eps import Norm as Norm
    from jembench.attacks.threat import in_unit_ball as in_unit_ball
    from jembench.attacks.threat import project as project
    from jembench.attacks.threat import steepest as steepest
    from jembench.data import dequantisation as dequantisation
    from jembench.data.pixels import Bounds as Bounds
    from jembench.drawing import new_figure as new_figure
    from jembench.models.adapters import foreign as foreign
    from jembench.models.densities import ByBayes as ByBayes
    from jembench.models.densities import ClassGaussians as ClassGaussians
    from jembench.models.densities import FirstBatch as FirstBatch
    from jembench.models.energies import LogitModel as LogitModel
    from jembench.models.energies import marginal_energy as marginal_energy
    from jembench.models.execution import at_least_float32 as at_least_float32
    from jembench.models.execution import frozen as frozen
    from jembench.models.execution import mode as mode
    from jembench.models.nets.build import build_net as build_net
    from jembench.models.nets.wide_resnet import in_full as in_full
    from jembench.models.objective import Weights as Weights
    from jembench.models.objective import hybrid_loss as hybrid_loss
    from jembench.report.figures.planned import Drawing as Drawing
    from jembench.report.figures.planned import Planned as Planned
    from jembench.report.figures.results import Result as Result
    from jembench.report.figures.results import needs as needs
    from jembench.report.formats import Document as Document
    from jembench.report.formats import csv_text as csv_text
    from jembench.sampling import chain as chain
    from jembench.sampling.pcd import PersistentChains as PersistentChains
    from jembench.sampling.sgld import Langevin as Langevin
    from jembench.sampling.sgld import langevin_step as langevin_step
    from jembench.store.checkpoint import load_weights as load_weights
    from jembench.store.merge import merge_stores as merge_stores
    from jembench.store.store import lost_units as lost_units
    from jembench.store.works import work_files as work_files

_LATE = {
    "seeds": "jembench.seeds",
    "Norm": "jembench.attacks.eps:Norm",
    "in_unit_ball": "jembench.attacks.threat:in_unit_ball",
    "project": "jembench.attacks.threat:project",
    "steepest": "jembench.attacks.threat:steepest",
    "dequantisation": "jembench.data.dequantisation",
    "Bounds": "jembench.data.pixels:Bounds",
    "foreign": "jembench.models.adapters.foreign",
    "ByBayes": "jembench.models.densities:ByBayes",
    "LogitModel": "jembench.models.energies:LogitModel",
    "marginal_energy": "jembench.models.energies:marginal_energy",
    "at_least_float32": "jembench.models.execution:at_least_float32",
    "frozen": "jembench.models.execution:frozen",
    "mode": "jembench.models.execution:mode",
    "build_net": "jembench.models.nets.build:build_net",
    "ClassGaussians": "jembench.models.densities:ClassGaussians",
    "FirstBatch": "jembench.models.densities:FirstBatch",
    "in_full": "jembench.models.nets.wide_resnet:in_full",
    "Weights": "jembench.models.objective:Weights",
    "hybrid_loss": "jembench.models.objective:hybrid_loss",
    "Drawing": "jembench.report.figures.planned:Drawing",
    "Planned": "jembench.report.figures.planned:Planned",
    "Result": "jembench.report.figures.results:Result",
    "needs": "jembench.report.figures.results:needs",
    "new_figure": "jembench.drawing:new_figure",
    "Document": "jembench.report.formats:Document",
    "csv_text": "jembench.report.formats:csv_text",
    "chain": "jembench.sampling.chain",
    "PersistentChains": "jembench.sampling.pcd:PersistentChains",
    "Langevin": "jembench.sampling.sgld:Langevin",
    "langevin_step": "jembench.sampling.sgld:langevin_step",
    "load_weights": "jembench.store.checkpoint:load_weights",
    "merge_stores": "jembench.store.merge:merge_stores",
    "lost_units": "jembench.store.store:lost_units",
    "work_files": "jembench.store.works:work_files",
}
"""Where each of the names above is found, once it is asked for."""


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = pkgutil.resolve_name(_LATE[name])
    return value
