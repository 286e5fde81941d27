"""The interfaces between jembench and plugins.

There are interfaces of datasets, models, samplers, metrics, feature networks and executors.

Each module defines the protocols of one kind of component and the data that it exchanges. A plugin
inherits from nothing: a class is a sampler if it has the methods of :class:`Sampler`.

Legend of shapes: B batch, N examples, C channels, H height, W width, K classes. Images are float32
(B, C, H, W) within ``DataSpec.bounds``; in datasets and samples they are uint8 (N, C, H, W).
Energies and log densities are float32 (B,) in nats per image; **a lower energy means a higher
density**.

A component is made by its factory, the function or class that its entry point names:

- ``jembench.models``: ``factory(data_spec, **options)`` returns an ``nn.Module`` with capabilities,
  see below
- ``jembench.samplers``: ``factory(data_spec, **options)`` returns a :class:`Sampler`
- ``jembench.datasets``: ``factory(**options)`` returns a :class:`Dataset`
- ``jembench.ood_sets``: ``factory(**options)`` returns an :class:`OODSet`
- ``jembench.metrics``: ``factory(**options)`` returns a :class:`Metric`
- ``jembench.features``: ``factory(**options)`` returns a :class:`FeatureNetwork`
- ``jembench.scores``: ``factory(**options)`` returns an :class:`OODScore`
- ``jembench.adaptations``: ``factory(**options)`` returns an ``Adaptation``
  (``interfaces.metrics``)
- ``jembench.importers``: ``factory(**options)`` returns an :class:`Importer`
- ``jembench.executors``: ``factory(**options)`` returns an ``Executor`` (``interfaces.running``)
- ``jembench.formats``: ``render(document, **options)`` returns a
  ``jembench.report.formats.Document`` as text
- ``jembench.figures``: ``plan(results)`` returns figures of the metric that the entry point names
- ``jembench.trackers``: ``factory(**options)`` returns a :class:`Tracker`
- ``jembench.optimizers``: ``factory(params, **constants, **options)`` returns a
  ``torch.optim.Optimizer``; the recipe's constants lr, betas, momentum, weight_decay and fused are
  given if the factory has parameters of these names
- ``jembench.schedules``: ``factory(**options)`` returns (iteration, iterations per epoch,
  iterations) -> a factor of the learning rate
- ``jembench.augmentations``: ``factory(**options)`` returns (uint8 images (B, C, H, W), generator)
  -> such images
- ``jembench.starts``: ``factory(data_spec, **options)`` returns a :class:`Start`
- ``jembench.suites``: a package, which is not called, with its ``*.toml`` files

Users choose models, datasets, metrics and suites on the command line, a score by ``--metrics
ood:score=``, an adaptation by ``--metrics shift:adapt=``, what belongs to training by ``--set``
(``chains.sampler=``, ``optimizer.name=``, ``schedule.name=``, ``data.augmentation=``), a format by
``--format``, and trackers by ``--trackers`` or ``JEMBENCH_TRACKERS``.

``options`` are the factory's keyword-only parameters, annotated with ``int``, ``float``, ``bool``,
``str``, ``Literal[...]`` or one of these ``| None``; a spec string such as ``jem:net=wrn-28-10``
fills them in. Keep the module of the factory light (import torch inside the function), so that
listing and reporting stay fast.
"""

from jembench.interfaces.data import *
from jembench.interfaces.evaluation import *
from jembench.interfaces.features import *
from jembench.interfaces.metrics import *
from jembench.interfaces.models import *
from jembench.interfaces.running import *
from jembench.interfaces.samplers import *

API = 2
"""The version of these interfaces. A distribution states the version that it was written for:

    [project.entry-points."jembench.api"]
    2 = "my_package"

The version grows by one with each change that may break existing plugins.
"""
