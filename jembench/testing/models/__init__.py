"""What every model promises. Importing the modules registers their checks, in this order."""

from jembench.testing.models import making, outputs, conduct, consistency, normalisation, training  # noqa: F401, I001
from jembench.testing.models.subject import ModelSubject as ModelSubject
