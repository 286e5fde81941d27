"""Further metrics of generated images.

They are precision, recall, density, coverage, memorisation, and FID at infinity.
"""
