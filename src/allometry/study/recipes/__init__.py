"""How each family is grown to a wanted size and trained."""

from allometry.study.recipes.ngram import ngram
from allometry.study.recipes.transformer import transformer

__all__ = ["ngram", "transformer"]
