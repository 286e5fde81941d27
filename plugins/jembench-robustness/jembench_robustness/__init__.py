"""Metrics of robustness for jembench: an ensemble of attacks, checks of gradients, and certified radii."""
