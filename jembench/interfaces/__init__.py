"""The interfaces between jembench and plugins: datasets, models, samplers, metrics, feature networks, executors.

Each module defines the protocols of one kind of component and the data that they exchange. A plugin inherits from
nothing: a class is a sampler if it has the methods of :class:`Sampler`.

Legend of shapes: B batch, N examples, C channels, H height, W width, K classes.
Images are float32 (B, C, H, W) within ``DataSpec.bounds``; in datasets and samples they are uint8 (N, C, H, W).
Energies and log densities are float32 (B,) in nats per image; **lower energy = likelier**.

A component is made by its factory, the function or class that its entry point names:

====================== =========================================== ==================================================
entry-point group      factory is called with                      returns
====================== =========================================== ==================================================
jembench.models        ``factory(data_spec, **options)``           an ``nn.Module`` with capabilities, see below
jembench.samplers      ``factory(data_spec, **options)``           a :class:`Sampler`
jembench.datasets      ``factory(**options)``                      a :class:`Dataset`
jembench.ood_sets      ``factory(**options)``                      an :class:`OODSet`
jembench.metrics       ``factory(**options)``                      a :class:`Metric`
jembench.features      ``factory(**options)``                      a :class:`FeatureNetwork`
jembench.scores        ``factory(**options)``                      an :class:`OODScore`
jembench.importers     ``factory(**options)``                      an :class:`Importer`
jembench.executors     ``factory(**options)``                      an :class:`Executor`
jembench.formats       ``render(document, **options)``             text of a ``jembench.plugin.Document``
jembench.figures       ``plan(results)``                           figures of the metric of that name
jembench.trackers      ``factory(**options)``                      a :class:`Tracker`
jembench.optimizers    ``factory(params, **constants, **options)`` a ``torch.optim.Optimizer``; the recipe's
                                                                   constants lr, betas, momentum, weight_decay and
                                                                   fused are given if the factory has parameters of
                                                                   these names
jembench.schedules     ``factory(**options)``                      (iteration, iterations per epoch, iterations) -> a
                                                                   factor of the learning rate
jembench.augmentations ``factory(**options)``                      (uint8 images (B, C, H, W), generator) -> such
                                                                   images
jembench.starts        ``factory(data_spec, **options)``           a :class:`Start`
jembench.suites        (a package, not called)                     its ``*.toml`` files
====================== =========================================== ==================================================

Users choose models, datasets, metrics and suites on the command line, a score by ``--metrics ood:score=``, what
belongs to training by ``--set`` (``chains.sampler=``, ``optimizer.name=``, ``schedule.name=``,
``data.augmentation=``), a format by ``--format``, and trackers by ``--trackers`` or ``JEMBENCH_TRACKERS``.

``options`` are the factory's keyword-only parameters, annotated with ``int``, ``float``, ``bool``, ``str``,
``Literal[...]`` or one of these ``| None``; a spec string such as ``jem:net=wrn-28-10`` fills them in. Keep the
module of the factory light (import torch inside the function), then listing and reporting stay fast.
"""

from __future__ import annotations

from jembench.interfaces.data import Dataset as Dataset
from jembench.interfaces.data import DataSpec as DataSpec
from jembench.interfaces.data import OODSet as OODSet
from jembench.interfaces.data import Split as Split
from jembench.interfaces.data import SplitName as SplitName
from jembench.interfaces.evaluation import KEPT as KEPT
from jembench.interfaces.evaluation import Checked as Checked
from jembench.interfaces.evaluation import Data as Data
from jembench.interfaces.evaluation import Evaluation as Evaluation
from jembench.interfaces.evaluation import Planned as Planned
from jembench.interfaces.evaluation import Predictions as Predictions
from jembench.interfaces.evaluation import Quantity as Quantity
from jembench.interfaces.evaluation import Samples as Samples
from jembench.interfaces.evaluation import Services as Services
from jembench.interfaces.evaluation import Source as Source
from jembench.interfaces.evaluation import Stability as Stability
from jembench.interfaces.evaluation import TrainingRecord as TrainingRecord
from jembench.interfaces.features import FeatureNetwork as FeatureNetwork
from jembench.interfaces.features import Features as Features
from jembench.interfaces.metrics import Costly as Costly
from jembench.interfaces.metrics import Measurement as Measurement
from jembench.interfaces.metrics import Metric as Metric
from jembench.interfaces.metrics import Need as Need
from jembench.interfaces.metrics import OODScore as OODScore
from jembench.interfaces.metrics import Resampled as Resampled
from jembench.interfaces.metrics import Resampling as Resampling
from jembench.interfaces.metrics import Value as Value
from jembench.interfaces.models import Batch as Batch
from jembench.interfaces.models import Capability as Capability
from jembench.interfaces.models import Chains as Chains
from jembench.interfaces.models import Classifier as Classifier
from jembench.interfaces.models import Density as Density
from jembench.interfaces.models import Energies as Energies
from jembench.interfaces.models import Energy as Energy
from jembench.interfaces.models import Fittable as Fittable
from jembench.interfaces.models import Generative as Generative
from jembench.interfaces.models import HasSampler as HasSampler
from jembench.interfaces.models import Import as Import
from jembench.interfaces.models import Importer as Importer
from jembench.interfaces.models import Loss as Loss
from jembench.interfaces.models import Negatives as Negatives
from jembench.interfaces.models import SavedChains as SavedChains
from jembench.interfaces.models import Trainable as Trainable
from jembench.interfaces.running import Driver as Driver
from jembench.interfaces.running import Ended as Ended
from jembench.interfaces.running import Ending as Ending
from jembench.interfaces.running import Event as Event
from jembench.interfaces.running import EventKind as EventKind
from jembench.interfaces.running import Executor as Executor
from jembench.interfaces.running import Job as Job
from jembench.interfaces.running import Tracker as Tracker
from jembench.interfaces.running import WorkKind as WorkKind
from jembench.interfaces.samplers import Buffered as Buffered
from jembench.interfaces.samplers import ChainState as ChainState
from jembench.interfaces.samplers import GradEnergy as GradEnergy
from jembench.interfaces.samplers import NeedsTrainingData as NeedsTrainingData
from jembench.interfaces.samplers import Sampler as Sampler
from jembench.interfaces.samplers import Shardable as Shardable
from jembench.interfaces.samplers import Start as Start
from jembench.interfaces.samplers import StepInfo as StepInfo

API = 2
"""The version of these interfaces. A distribution states which one it was written for (1 if it states none):

    [project.entry-points."jembench.api"]
    2 = "my_package"

It grows by one whenever a plugin that was written for the version before may break.
"""
