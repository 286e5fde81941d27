"""Figures of a store's results, each with its numbers. Imports no torch.

They read only the store and, for examples, the dataset.
"""
