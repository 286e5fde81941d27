"""Metrics, one subject a file; each states its protocol."""
