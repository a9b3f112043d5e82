import dataclasses
import io
import math

import altair
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from allometry.report import figures, theme
from allometry.report.law_bands import bands, grid, series
from allometry.report.run_groups import configurations as configurations_of
from allometry.report.run_groups import table
from tests.report.synthetic import analysis, synthetic_runs, truth

GRID = {"per_parameter": (5.0, 20.0, 80.0), "noise": 0.002, "seeds": 1}


@pytest.fixture(scope="module")
def study():
    return synthetic_runs(**GRID), analysis(**GRID)


@given(st.floats(-8, 8), st.floats(0.02, 20), st.integers(4, 9))
def test_ticks_lie_inside_and_are_few(start, decades, most):
    lo, hi = 10.0**start, 10.0 ** (start + decades)
    ticks = theme.log_ticks(lo, hi, most)
    assert 2 <= len(ticks) <= most + 1
    assert ticks == sorted(set(ticks))
    assert lo * (1 - 1e-6) <= ticks[0]
    assert ticks[-1] <= hi * (1 + 1e-6)


def test_the_light_colours_differ_from_one_another():
    # A colour becomes a CSS variable by its value, so no two names may share one.
    assert len(set(theme.LIGHT.values())) == len(theme.LIGHT)
    assert set(theme.LIGHT) == set(theme.DARK)


def contrast(a, b):
    """The contrast ratio of WCAG 2.2 between two hexadecimal colours."""

    def light(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))

    hi, lo = sorted((light(a), light(b)), reverse=True)
    return (hi + 0.05) / (lo + 0.05)


@pytest.mark.parametrize("scheme", [theme.LIGHT, theme.DARK])
def test_text_and_marks_stand_out_from_the_paper(scheme):
    for name, colour in scheme.items():
        if name in ("ink", "muted") or name.startswith("c"):
            assert contrast(colour, scheme["paper"]) >= 4.5, name  # WCAG AA for text
        elif name.startswith("s"):
            assert contrast(colour, scheme["paper"]) >= 2.2, name  # lines, named by the legend


def test_bands_follow_the_law_along_the_ladder(study):
    family = study[1].families[0]
    drawn = bands(family.law_without, family.configurations, "N", "character")
    assert set(drawn["line"]) == set(series(family.configurations, "N", "character").lines)
    law = family.law_without(N=drawn["N"].to_numpy(), D=drawn["D"].to_numpy())
    np.testing.assert_allclose(drawn["mid"], law, rtol=1e-12)
    true = truth(drawn["N"], drawn["D"])
    assert ((drawn["lo"] < true) & (true < drawn["hi"])).all()
    assert (drawn["lo"] < drawn["mid"]).all()
    assert (drawn["mid"] < drawn["hi"]).all()


def test_lines_are_grouped_by_data_or_by_size(study):
    configurations = study[1].families[0].configurations
    assert grid(configurations)
    by_size = series(configurations, "D", "character").lines
    assert next(iter(by_size)) == "1.4K"
    assert len(by_size) == 6
    keys = sorted(k for keys in by_size.values() for k in keys)
    assert keys == sorted(k for c in configurations for k in c.keys)
    by_rank = series(configurations, "C", "character")
    assert by_rank.title == "Data, from least to most"
    assert list(by_rank.lines) == ["1", "2", "3"]
    same = [dataclasses.replace(c, D=1e6 if c.D / c.N < 60 else 4e6) for c in configurations]
    by_data = series(same, "N", "character")
    assert by_data.title == "Characters seen"
    assert list(by_data.lines) == ["1M", "4M"]
    ratio = [
        dataclasses.replace(c, D=c.N * (20 if c.D / c.N < 60 else 80)) for c in configurations
    ]
    by_ratio = series(ratio, "N", "character")
    assert by_ratio.title == "Characters per parameter"
    assert list(by_ratio.lines) == ["20", "80"]


def test_a_ladder_is_one_line():
    configurations = tuple(configurations_of(table(synthetic_runs())))
    ladder = [c for c in configurations if c.family == "transformer"]
    assert list(series(ladder, "N", "character").lines) == [""]


def test_held_out_runs_are_crosses_and_the_others_are_not(study):
    chart = figures.against(*study, "N")
    tooltips = [
        {row["tooltip"]: layer["mark"].get("shape") for row in layer["data"]["values"]}
        for layer in chart["layer"]
        if layer["mark"]["type"] == "point" and "description" in layer["encoding"]
    ]
    dots, crosses = tooltips
    assert len(crosses) == 6
    assert all("480K" in t or "150K" in t for t in crosses)
    assert not any("480K" in t or "150K" in t for t in dots)
    assert set(crosses.values()) != set(dots.values())


@pytest.mark.parametrize("draw", ["frontier", "curves", "N", "D", "C"])
@pytest.mark.parametrize("width", [344, 960])
def test_charts_are_valid_and_as_wide_as_asked(study, draw, width):
    if draw in "NDC":
        chart = figures.against(*study, draw, width)
    else:
        chart = getattr(figures, draw)(*study, width)
    if width == 344:
        altair.Chart.from_dict(chart)  # checks it against Vega-Lite's schema
    assert f'width="{width}"' in theme.svg(chart)


def test_an_endless_interval_can_be_drawn():
    arguments = {"ngram": 0.81, "noise": 0.02}
    chart = figures.frontier(synthetic_runs(**arguments), analysis(**arguments))
    assert "NaN" not in theme.svg(chart)


def test_the_picture_is_saved_as_svg_and_png(study, tmp_path):
    path = figures.save(tmp_path / "law.png", study[0], study[1], width=760)
    assert path == tmp_path / "law.svg"
    assert path.read_text().startswith("<svg")
    picture = Image.open(io.BytesIO((tmp_path / "law.png").read_bytes()))
    assert picture.size[0] == 2 * 760
    assert math.isclose(picture.size[0] / picture.size[1], 2, rel_tol=0.01)
