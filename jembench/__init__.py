"""jembench: the benchmark harness for joint energy-based models and every other hybrid model."""

__version__ = "0.1.0"
