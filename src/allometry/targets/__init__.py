"""The targets room: what a model is asked to do."""

from allometry.targets.text import Text
from allometry.targets.vocabulary import Vocabulary, vocabulary_from_dict

__all__ = ["Text", "Vocabulary", "vocabulary_from_dict"]
