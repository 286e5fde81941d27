"""Energies, networks and adapters, and how a network is computed."""
