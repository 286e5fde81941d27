"""Chains that draw images from an energy: SGLD, persistent chains, and their loop.

A replay buffer holds the persistent chains.
"""
