"""Further metrics of generated images.

The metrics are precision, recall, density, coverage, memorisation, and FID at infinity.
"""
