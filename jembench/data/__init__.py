"""Datasets as uint8 tensors, their splits and augmentations, and OOD sets."""
