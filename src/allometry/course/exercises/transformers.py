"""Exercises of the lesson on transformers."""

import math

from allometry.course.exercise import Exercise

EXERCISES = (
    Exercise(
        "A decoder has 12 layers of width 768 with 12 heads, feed-forward layers four times as "
        "wide, no biases and no norms. How many parameters do its blocks have?",
        lambda: 12 * 12 * 768**2,
        "Attention has four square matrices, the feed-forward layers eight; the number of heads "
        "does not matter.",
        """
from allometry.models import Transformer

model = Transformer(None, width=768, depth=12, heads=12, positions=None, norm=None, bias=False)
answer = sum(p.numel() for p in model.blocks.parameters())
""",
        tolerance=0.0,
    ),
    Exercise(
        "A query scores three keys $(2, 0, 1)$, before the factor $1/\\sqrt m$. The head size is "
        "$m = 4$. Which weight has the first key?",
        lambda: math.e / (math.e + 1 + math.sqrt(math.e)),
        "Divide by 2, then apply the softmax.",
        """
import torch

answer = (torch.tensor([2.0, 0.0, 1.0]) / 4**0.5).softmax(0)[0].item()
""",
        tolerance=1e-3,
    ),
    Exercise(
        "What is the scalar product of the sinusoidal positions 5 and 9, at width 64? (It is the "
        "same for 105 and 109.)",
        # sum over frequencies of cos((9 - 5) w), w = 10000^(-2i/64).
        lambda: sum(math.cos(4 * 10_000 ** (-2 * i / 64)) for i in range(32)),
        "sin a sin b + cos a cos b = cos(a - b).",
        """
from allometry.models.transformer.positions import sinusoidal

table = sinusoidal(16, 64)
answer = (table[5] @ table[9]).item()
""",
        tolerance=1e-3,
    ),
)
