"""The execution of a plan: the driver, workers and executors, fits, evaluation, events and
provenance.
"""
