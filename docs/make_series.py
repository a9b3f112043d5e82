"""Draw the pictures of docs/targets.md: `python docs/make_series.py`."""

from pathlib import Path

import numpy as np

from allometry.models import linear_process as lp
from allometry.report import process_spectra, theme

FIGURES = Path(__file__).parent / "figures"


def main() -> None:
    truth = lp.Autoregression(np.array([1.6, -0.81]), 1.0)
    x = truth.sample(2000, np.random.default_rng(0))
    fits = {
        "Yule-Walker, order 2": lp.yule_walker(x, 2),
        "Burg, order 2": lp.burg(x, 2),
        "least squares, order 2": lp.least_squares(x, 2),
        "Burg, order 12": lp.burg(x, 12),
    }
    pictures = {
        "spectra": process_spectra.spectra(x, fits, truth),
        "extension": process_spectra.extension(x, 2, 40, truth),
    }
    FIGURES.mkdir(exist_ok=True)
    for name, chart in pictures.items():
        (FIGURES / f"{name}.svg").write_text(theme.on_paper(theme.svg(chart)))


if __name__ == "__main__":
    main()
