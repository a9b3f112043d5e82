"""A function `train(shape, tokens, seed) -> loss` as a study, in Python.

allometry run docs/examples/own_function.py:study
"""

import numpy as np

import allometry as al


def train(shape, tokens, seed):
    """Fit a sine by random features: width is the number of features."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-3, 3, int(tokens))
    w, b = rng.normal(0, 2, shape["width"]), rng.uniform(0, 6, shape["width"])
    fit = np.linalg.lstsq(np.cos(np.outer(x, w) + b), np.sin(2 * x), rcond=1e-6)[0]
    at = np.linspace(-3, 3, 200)
    return {"loss": float(np.mean((np.cos(np.outer(at, w) + b) @ fit - np.sin(2 * at)) ** 2))}


def study():
    """Three widths, two seeds."""
    shapes = [{"width": w, "N": w} for w in (4, 8, 16)]
    return al.study.function_study(train, shapes, tokens=200, seeds=2)
