"""Public runs shared by the tests of laws."""

import csv

import numpy as np
import pytest


def columns(path, names):
    with path.open() as file:
        rows = list(csv.DictReader(file))
    return {ours: np.array([float(r[theirs]) for r in rows]) for ours, theirs in names.items()}


@pytest.fixture(scope="session")
def epoch(shared_data):
    path = shared_data / "epoch_chinchilla" / "svg_extracted_data.csv"
    return columns(path, {"N": "Model Size", "C": "Training FLOP", "loss": "loss"})
