"""The models room."""

from allometry.models.markov import KneserNey

__all__ = ["KneserNey"]
