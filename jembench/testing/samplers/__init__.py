"""What every sampler promises. Importing the modules registers their checks, in this order."""

from jembench.testing.samplers import chains, independence, memory  # noqa: F401
from jembench.testing.samplers.subject import SamplerSubject as SamplerSubject
