"""Stands for jembench where a test of executors wants a worker that only counts: on ``PYTHONPATH`` before it."""
