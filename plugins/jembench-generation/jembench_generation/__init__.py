"""Further metrics of generated images: precision, recall, density, coverage, memorisation, FID at
infinity.
"""
