"""Strategies over next-token logits."""
