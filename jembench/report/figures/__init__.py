"""Figures of what a store holds, each with the numbers behind it. Reads the store alone and imports
no torch.
"""
