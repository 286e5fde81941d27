"""The execution of a plan.

It has the driver, workers and executors, fits, evaluation, events and provenance.
"""
