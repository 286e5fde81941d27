"""Intervals, paired tests and rank statistics of all results."""
