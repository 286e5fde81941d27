"""Figures of a store's results, each with its numbers. Imports no torch.

They read the store alone.
"""
