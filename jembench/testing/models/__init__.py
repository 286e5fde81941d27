"""Promises of models. Importing the modules registers their checks, in this order."""

from jembench.testing.models import (  # noqa: I001
    outputs as outputs,
    conduct as conduct,
    consistency as consistency,
    density as density,
    training as training,
)
from jembench.testing.models.subject import ModelSubject as ModelSubject
