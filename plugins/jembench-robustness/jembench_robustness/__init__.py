"""Metrics of robustness for jembench: AutoAttack, checks of gradients, and certified radii."""
