"""Energies, networks, weights made elsewhere, and how a network is computed."""
