"""Further metrics of generated images.

Precision, recall, density, coverage, memorisation, and FID at infinity.
"""
