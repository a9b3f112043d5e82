r"""Charts of linear processes: spectra, and extended autocovariances.

Letters: $\omega$ radians per step, S the spectrum, $r_k$ the autocovariance at lag k.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy import ndarray
from scipy import signal

from allometry._core.errors import require
from allometry.models.linear_process import Autoregression, autocovariance, maximum_entropy
from allometry.report import formatting as fmt
from allometry.report import theme
from allometry.report.theme import LIGHT, Spec, layer

POINTS = 400
"""Number of frequencies of a spectrum."""


def spectra(
    x: Float[ndarray, " n"],
    fits: Mapping[str, Autoregression],
    truth: Autoregression | None = None,
    width: int = 720,
) -> Spec:
    r"""The spectrum of a series by Welch's method, and those of processes fitted to it.

    All are $S(\omega) = \sum_k r_k e^{-i\omega k}$, so that white noise of variance 1 has S = 1.

    Args:
        x: The series.
        fits: Processes by name, such as those of `yule_walker`, `burg` and `least_squares`.
        truth: The true process, if known; drawn as a dashed line.
        width: Width in pixels.

    References: `welch1967` for the points.
    """
    require(len(x) >= 16, "spectra.x", "have at least 16 values", len(x))
    omega = np.linspace(0, np.pi, POINTS)
    # Two-sided, because the one-sided density is twice S.
    where, power = signal.welch(x, nperseg=min(256, len(x)), return_onesided=False)
    keep = (where > 0) & (where < 0.5)
    points = pd.DataFrame({"omega": 2 * np.pi * where[keep], "S": power[keep]})
    lines = pd.concat(
        [
            pd.DataFrame({"omega": omega, "S": m.spectrum(omega), "name": n})
            for n, m in fits.items()
        ]
        or [pd.DataFrame({"omega": [], "S": [], "name": []})]
    )
    exact = None
    if truth is not None:
        exact = pd.DataFrame({"omega": omega, "S": truth.spectrum(omega)})
    everything = [points["S"], lines["S"], *([] if exact is None else [exact["S"]])]
    across = {"field": "omega", "type": "quantitative", "scale": {"domain": [0, np.pi]}}
    across |= {"axis": {"title": "Frequency, radians per step", "tickCount": 7}}
    up = theme.log_axis("S", *theme.extent(pd.concat(everything)), fmt.significant, None)
    order = list(fits)
    hues = [LIGHT[theme.FAMILY_COLOURS[i % 6]] for i in range(len(order))]
    colour = {"field": "name", "type": "nominal", "sort": order, "legend": {"title": None}}
    colour |= {"scale": {"domain": order, "range": hues}}
    dash = colour | {"scale": {"domain": order, "range": _dashes(len(order))}}
    dots = {"filled": True, "size": 16, "color": LIGHT["muted"], "opacity": 0.55}
    marks = [layer(points, "point", dots, x=across, y=up)]
    if exact is not None:
        look = {"color": LIGHT["ink"], "strokeDash": [2, 3], "strokeWidth": 2}
        marks.append(layer(exact, "line", look, x=across, y=up))
    if order:
        look = {"strokeWidth": 1.8}
        marks.append(layer(lines, "line", look, x=across, y=up, color=colour, strokeDash=dash))
    return theme.styled(marks, "Spectrum S", width, round(width * 0.45))


def extension(
    x: Float[ndarray, " n"],
    p: int,
    lags: int,
    truth: Autoregression | None = None,
    width: int = 720,
) -> Spec:
    r"""The first autocovariances of a series, extended by maximum entropy, beside measured ones.

    Args:
        x: The series.
        p: The last lag taken as known.
        lags: The last lag of the extension.
        truth: The true process, if known; drawn as rings.
        width: Width in pixels.

    References: `burg1975`.
    """
    require(1 <= p < lags < len(x), "extension.p", f"be from 1 to below {lags}", p)
    r = autocovariance(x, lags)
    known = pd.DataFrame({"lag": range(p + 1), "r": r[: p + 1]})
    on = pd.DataFrame({"lag": range(p, lags + 1), "r": maximum_entropy(r[: p + 1], lags)[p:]})
    rest = pd.DataFrame({"lag": range(p + 1, lags + 1), "r": r[p + 1 :]})
    across = {"field": "lag", "type": "quantitative", "axis": {"title": "Lag", "tickMinStep": 1}}
    dots = {"filled": True, "size": 60, "color": LIGHT["c1"]}
    faint = {"filled": True, "size": 26, "color": LIGHT["muted"], "opacity": 0.6}
    marks = [
        layer(on, "line", {"color": LIGHT["c2"], "strokeWidth": 1.8}, x=across, y=_up()),
        layer(rest, "point", faint, x=across, y=_up()),
        layer(known, "point", dots, x=across, y=_up()),
    ]
    if truth is not None:
        exact = pd.DataFrame({"lag": range(lags + 1), "r": truth.autocovariance(lags)})
        rings = {"filled": False, "size": 60, "color": LIGHT["c3"], "strokeWidth": 1.2}
        marks.append(layer(exact, "point", rings, x=across, y=_up()))
    return theme.styled(marks, "Autocovariance", width, round(width * 0.4))


def _up() -> Spec:
    return {"field": "r", "type": "quantitative", "axis": {"title": None}}


def _dashes(n: int) -> list[list[int]]:
    return [theme.DASHES[i % len(theme.DASHES)] for i in range(n)]
