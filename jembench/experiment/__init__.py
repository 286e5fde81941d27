"""Experiments: suites, sweeps, recipes and plans. Imports no torch."""
