"""Backbones: networks from images (B, C, H, W) to logits (B, K)."""
