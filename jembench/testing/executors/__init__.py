"""What every executor promises. Importing the modules registers their checks, in this order."""

from jembench.testing.executors import conduct  # noqa: F401
from jembench.testing.executors.subject import ExecutorSubject as ExecutorSubject
from jembench.testing.executors.subject import Session as Session
