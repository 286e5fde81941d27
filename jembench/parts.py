"""Networks, losses, densities, chains and attack steps, from which plugins build components.

Importing this module imports torch. Import it in the module that computes, or inside the factory.
The factory's module imports only :mod:`jembench.plugin` at its top.
"""

from jembench import seeds as seeds
from jembench.attacks import threat as threat
from jembench.data import dequantisation as dequantisation
from jembench.drawing import panels as panels
from jembench.models import densities as densities
from jembench.models import execution as execution
from jembench.models.energies import LogitModel as LogitModel
from jembench.models.energies import marginal_energy as marginal_energy
from jembench.models.objective import Weights as Weights
from jembench.models.objective import hybrid_loss as hybrid_loss
from jembench.report.figures.base import Drawing as Drawing
from jembench.report.figures.base import Planned as Planned
from jembench.sampling import chain as chain
from jembench.sampling.factories import ascent as ascent
from jembench.sampling.pcd import PersistentChains as PersistentChains
from jembench.sampling.sgld import Langevin as Langevin
from jembench.sampling.sgld import ShortRun as ShortRun
from jembench.sampling.sgld import langevin_step as langevin_step
