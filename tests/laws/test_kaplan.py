"""The figures of Kaplan et al. 2020 and Hernandez et al. 2021."""

import numpy as np
import pytest

from allometry.laws import kaplan


def test_eight_times_the_size_needs_about_five_times_the_data():
    assert pytest.approx(4.66, abs=0.03) == 8 ** (0.076 / 0.103)  # the paper rounds to 0.74
    ratio = kaplan.data_against_overfitting(8.0) / kaplan.data_against_overfitting(1.0)
    assert float(ratio) == pytest.approx(4.66, abs=0.01)


def test_data_against_two_percent_of_overfitting():
    # Solving the penalty for 2 % at a billion parameters gives 2.41e10; the rule says 2.29e10.
    assert float(kaplan.overfitting(1e9, 2.41e10)) == pytest.approx(0.02, rel=0.01)
    assert float(kaplan.data_against_overfitting(1e9)) == pytest.approx(2.29e10, rel=0.01)


def test_overfitting_depends_on_one_ratio():
    a = kaplan.overfitting(1e9, 1e10)
    b = kaplan.overfitting(1e6, 1e10 / 1e3 ** (0.076 / 0.103))
    assert float(a) == pytest.approx(float(b), rel=1e-12)


def test_penalty_is_the_ratio_of_losses():
    far = kaplan.loss(1e9, 1e30)
    near = kaplan.loss(1e9, 1e10)
    assert float(near / far - 1) == pytest.approx(float(kaplan.overfitting(1e9, 1e10)), rel=1e-6)


def test_compute_exponent():
    assert kaplan.compute_exponent() == pytest.approx(0.052, abs=0.002)


def test_limits_of_the_joint_law():
    n = np.array([1e6, 1e9])
    size = kaplan.loss_of_size(n, 0.076, 6.4e13)
    np.testing.assert_allclose(kaplan.loss(n, 1e30), size, rtol=1e-6)
    data = kaplan.loss_of_data(n, 0.103, 1.8e13)
    np.testing.assert_allclose(kaplan.loss(1e40, n), data, rtol=1e-6)


def test_batch_adjustments():
    L = 2.5
    critical = kaplan.critical_batch(L)
    assert float(critical) == pytest.approx(2.1e8 / 2.5 ** (1 / 0.21))
    # At the critical batch size both steps and compute are twice their least.
    assert float(kaplan.least_steps(100.0, critical, L)) == pytest.approx(50.0)
    assert float(kaplan.least_compute(8.0, critical, L)) == pytest.approx(4.0)


def test_allocation():
    at = kaplan.KaplanAllocation.at(1.0)
    assert {k: float(v) for k, v in at.items()} == {"N": 1.3e9, "B": 2e6, "S": 5.4e3, "D": 2e10}
    # Data are batch times steps, so that their exponents add up.
    assert kaplan.KaplanAllocation.B[1] + kaplan.KaplanAllocation.S[1] == pytest.approx(
        kaplan.KaplanAllocation.D[1], abs=1e-9
    )


def test_transfer():
    D_T = kaplan.effective_data_transferred(3e5, 4e7)
    assert float(D_T) == pytest.approx(1.9e4 * 3e5**0.18 * 4e7**0.38)


def test_compute_law_and_steps_law():
    assert float(kaplan.loss_of_compute(3.1e8)) == 1.0
    huge = kaplan.loss_of_steps(1e9, 1e30)
    assert float(huge) == pytest.approx((6.5e13 / 1e9) ** 0.077, rel=1e-6)
