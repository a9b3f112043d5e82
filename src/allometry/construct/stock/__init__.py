"""Checkpoints of stock architectures that other programs load without custom code."""
