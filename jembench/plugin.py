"""Names that a plugin's modules may import at their top.

The names are marks for options, errors, helpers for metrics, and ``resolve``.

Importing this module imports no torch, so that `jembench list` stays fast. :mod:`jembench.parts`
has the networks, losses and chains, and :mod:`jembench.interfaces` the protocols. A plugin imports
these three modules, and :mod:`jembench.testing` in its tests. These modules change only with
:data:`jembench.interfaces.API`; everything else in jembench may change without notice.
"""

from jembench.catalog.options import Content as Content
from jembench.catalog.options import Incidental as Incidental
from jembench.catalog.options import Names as Names
from jembench.catalog.options import Neutral as Neutral
from jembench.catalog.options import NotInFiles as NotInFiles
from jembench.catalog.options import OnlyWith as OnlyWith
from jembench.catalog.options import built_from as built_from
from jembench.catalog.options import pretrained as pretrained
from jembench.catalog.registry import resolve as resolve
from jembench.catalog.validation import Range as Range
from jembench.errors import CheckpointError as CheckpointError
from jembench.errors import Diverged as Diverged
from jembench.errors import NotApplicable as NotApplicable
from jembench.errors import SpecError as SpecError
from jembench.errors import Unavailable as Unavailable
from jembench.files import path_of as path_of
from jembench.metrics.base import Estimate as Estimate
from jembench.metrics.base import Metric as Metric
from jembench.metrics.base import mean as mean
from jembench.metrics.base import share as share
from jembench.metrics.ood_scores import PredictionScore as PredictionScore
from jembench.models.factories import network as network
