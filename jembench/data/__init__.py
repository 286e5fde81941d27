"""Datasets as uint8 tensors, and batches made from them on the device."""
