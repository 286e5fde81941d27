"""Energies, networks, the import of weights, and the execution of networks on a device."""
