"""The execution of a plan.

The driver, workers and executors, fits, evaluation, events and provenance.
"""
