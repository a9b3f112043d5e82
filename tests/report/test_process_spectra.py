"""Pictures of the classic processes: what is drawn is what is known."""

import numpy as np
import pandas as pd
import pytest

from allometry._core.errors import InputError
from allometry.models import linear_process as lp
from allometry.report import process_spectra, theme

TRUTH = lp.Autoregression(np.array([1.6, -0.81]), 1.0)


@pytest.fixture(scope="module")
def series():
    return TRUTH.sample(20_000, np.random.default_rng(0))


def values(spec, i):
    return pd.DataFrame(spec["layer"][i]["data"]["values"])


def test_points_scatter_about_the_true_spectrum(series):
    spec = process_spectra.spectra(series, {"Burg": lp.burg(series, 2)}, TRUTH)
    points = values(spec, 0)
    ratio = points["S"] / TRUTH.spectrum(points["omega"].to_numpy())
    # Some 155 half-overlapping segments: each ratio has a deviation of about 0.1. Smoothing by the
    # window biases the narrow peak, so the median is judged.
    assert abs(np.median(ratio) - 1) < 5 * 1.25 * 0.1 / np.sqrt(len(ratio))


def test_fits_and_truth_lie_together_at_the_peak(series):
    fits = {"Yule-Walker": lp.yule_walker(series, 2), "Burg": lp.burg(series, 2)}
    spec = process_spectra.spectra(series, fits, TRUTH)
    exact, drawn = values(spec, 1), values(spec, 2)
    peak = exact.loc[exact["S"].idxmax(), "omega"]
    # The peak of an AR(2) with complex roots: cos w = phi_1 (phi_2 - 1) / (4 phi_2).
    assert np.cos(peak) == pytest.approx(1.6 * (-0.81 - 1) / (4 * -0.81), abs=0.01)
    for name, line in drawn.groupby("name"):
        assert name in fits
        assert line.loc[line["S"].idxmax(), "omega"] == pytest.approx(peak, abs=0.03)
    assert theme.svg(spec).startswith("<svg")


def test_extension_agrees_with_the_process(series):
    spec = process_spectra.extension(series, 2, 20, TRUTH)
    on, exact = values(spec, 0), values(spec, 3)
    truth = exact["r"].to_numpy()[2:]
    # Twenty lags on, errors of the first three have grown to a few per cent of r_0.
    np.testing.assert_allclose(on["r"], truth, atol=0.2 * exact["r"][0])
    assert len(values(spec, 1)) == 18
    with pytest.raises(InputError, match="be from 1"):
        process_spectra.extension(series, 20, 20)


def test_short_series_are_refused():
    with pytest.raises(InputError, match="at least 16"):
        process_spectra.spectra(np.zeros(4), {})
