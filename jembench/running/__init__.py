"""The execution of a plan.

This package has the driver, workers, executors, fits, evaluation, events and provenance.
"""
