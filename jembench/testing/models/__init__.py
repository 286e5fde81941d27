"""Promises of models. Importing the modules registers their checks, in this order."""

from jembench.testing.models import outputs, conduct, consistency, density, training  # noqa: F401, I001
from jembench.testing.models.subject import ModelSubject as ModelSubject
