"""Metrics of generated images since JEM: memorisation, density and coverage, FID at infinitely many images."""
