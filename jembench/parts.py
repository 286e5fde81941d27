"""Networks, losses, densities, chains and attack steps for plugins: what a component is built from.

Importing this module imports torch. Import it where a component is computed, or inside its factory; a factory's module
itself imports :mod:`jembench.plugin` at its top.
"""

from __future__ import annotations

from jembench import seeds as seeds
from jembench.attacks import threat as threat
from jembench.attacks.target import Target as Target
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
from jembench.report.formats import Document as Document
from jembench.sampling import chain as chain
from jembench.sampling.pcd import PersistentChains as PersistentChains
from jembench.sampling.sgld import Langevin as Langevin
from jembench.sampling.sgld import langevin_step as langevin_step
from jembench.stats.paired import holm as holm
from jembench.stats.paired import mcnemar as mcnemar
