"""Chains that draw images from an energy: SGLD, persistent chains with a replay buffer, and their
one loop.
"""
