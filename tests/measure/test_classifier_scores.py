import numpy as np
import pytest
import torch

from allometry import InputError
from allometry.measure import (
    accuracy_on_samples,
    adversarial_accuracy,
    boundary_distortion,
    classification,
    train_on_samples_accuracy,
)
from allometry.measure.classifier import fit_classifier


def blobs(n, seed, spread=1.0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(3, size=n)
    return 5 * np.eye(3)[labels] + spread * rng.normal(size=(n, 3)), labels


def test_samples_of_the_same_distribution_train_as_well_as_data():
    x, y = blobs(800, 0)
    s, t = blobs(800, 1)
    found = classification(x, y, s, t, steps=100)
    assert found["train_on_samples_accuracy"].lo > 0.95
    assert found["accuracy_on_samples"].lo > 0.95
    assert abs(found["boundary_distortion"].value) < 0.02
    assert found["adversarial_accuracy"].value == pytest.approx(1, abs=0.02)
    assert found["adversarial_divergence"].value < 0.1


def test_wrong_labels_reduce_the_accuracy():
    x, y = blobs(600, 0)
    s, t = blobs(600, 1)
    wrong = (t + 1) % 3
    assert train_on_samples_accuracy(x, y, s, wrong, steps=60).hi < 0.05
    assert accuracy_on_samples(x, y, s, wrong, steps=60).hi < 0.05
    assert boundary_distortion(x, y, s, wrong, steps=60).lo > 0.9
    assert adversarial_accuracy(x, y, s, wrong, steps=60).hi < 0.05


def test_a_dropped_class_costs_its_share():
    x, y = blobs(900, 0)
    s, t = blobs(900, 1)
    kept = t != 2
    # Samples are labelled by a classifier, so no labels are wrong: one class of three is missing.
    found = train_on_samples_accuracy(x, y, s[kept], steps=100)
    assert abs(found.value - (y != 2).mean()) < 5 * found.se + 0.02


def test_the_classifier_learns_digits():
    from sklearn.datasets import load_digits

    digits = load_digits()
    model = fit_classifier(digits.images[:1200], digits.target[:1200], steps=150)
    right = model.correct(
        torch.as_tensor(digits.images[1200:]), torch.as_tensor(digits.target[1200:])
    )
    # Logistic regression gets 0.91 on this split by writers.
    assert float(right.mean()) > 0.9


def test_results_repeat_by_seed_and_the_global_seed_is_unchanged():
    x, y = blobs(100, 0)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    a, b = (fit_classifier(x, y, steps=5) for _ in range(2))
    assert torch.equal(before, torch.get_rng_state())
    z = torch.as_tensor(x)
    assert torch.equal(a.probabilities(z), b.probabilities(z))


def test_invalid_input_raises():
    x, y = blobs(50, 0)
    with pytest.raises(InputError, match="sample_labels must be labels of real"):
        train_on_samples_accuracy(x, y, x, y + 7)
    with pytest.raises(InputError, match="sample_labels must have 50 entries"):
        train_on_samples_accuracy(x, y, x, y[:3])
    with pytest.raises(InputError, match=r"samples must be rows of shape \(3,\)"):
        train_on_samples_accuracy(x, y, x[:, :2])
