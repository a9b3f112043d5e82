"""Families of sequence models on one text and budget: loss against size.

Run: TEXT=PATH/TO/input.txt allometry run bench/families.py:short --folder DIR
     TEXT=PATH/TO/input.txt allometry run bench/families.py:long --folder DIR
then: python docs/make_families.py NAME=DIR

Both may share a folder. The rates are those of the recipes, except the transformer's: its best
rate for so few steps on Tiny Shakespeare is twice that on the embedded text (see
`bench/learning_rate.py --text`).
"""

import functools
import os

from allometry.study import Study, ladder
from allometry.study.recipes import convolution, lstm, mlp, ngram, rnn, transformer
from allometry.targets import Text

RECIPES = [functools.partial(transformer, lr=0.016), mlp, rnn, lstm, convolution]


def short():
    """Five sizes to 100,000 parameters, three seeds, 200,000 characters; n-grams of all orders."""
    sizes = ladder(1e3, 1e5, 5)
    return Study(_text(), [*RECIPES, ngram], sizes, seeds=3, tokens=2e5)


def long():
    """The three largest of them with two seeds on a million characters."""
    return Study(_text(), RECIPES, ladder(1e4, 1e5, 3), seeds=2, tokens=1e6)


def _text():
    return Text(os.environ["TEXT"])
