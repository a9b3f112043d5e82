"""Mammals, cities, brains and branching networks against published figures."""

import numpy as np
import pytest

import allometry as al
from allometry.laws import allometry, branching, compare, consistent, mammals, published


def test_kleibers_fit():
    table = mammals.metabolic_rates()
    line = allometry(table.x, table.y)
    assert line.exponent.value == pytest.approx(0.756, abs=5e-4)
    assert np.log10(line.coefficient.value) == pytest.approx(1.83, abs=5e-3)
    assert line.exponent.lo > 2 / 3
    assert len(table.names) == 26


def test_brains_of_62_mammals():
    table = mammals.brain_masses()
    line = allometry(table.x, table.y)
    # Weisberg's log brain = 2.13479 + 0.75169 log body.
    assert line.exponent.value == pytest.approx(0.75169, abs=5e-6)
    assert np.log(line.coefficient.value) == pytest.approx(2.13479, abs=5e-6)
    assert line.r2 == pytest.approx(0.9208, abs=5e-5)
    major = allometry(table.x, table.y, method="sma")
    assert major.exponent.value == pytest.approx(0.783, abs=5e-4)
    assert len(set(table.names)) == 62


def test_mammals_by_the_model_of_west_brown_and_enquist():
    # Savage, Deeds and Fontana (2008): eight decades give 0.81, an infinite network 3/4.
    assert branching.finite_size_exponent().exponent.value == pytest.approx(0.81, abs=5e-3)
    # Figure 7 there: 15 levels of small vessels where three branches leave each fork.
    three = branching.finite_size_exponent(small=15, branches=3).exponent.value
    assert three == pytest.approx(0.81, abs=5e-3)
    assert branching.limit_exponent() == 0.75
    large = branching.BranchingNetwork(300, small=24)
    assert branching.local_exponent(large) == pytest.approx(0.75, abs=1e-6)
    # Without small vessels the limit is approached from below; with nothing else B ~ M / log M.
    assert branching.local_exponent(branching.BranchingNetwork(12)) < 0.75
    only = branching.BranchingNetwork(40, small=40)
    assert only.mass == pytest.approx(41 * 2.0**40)


def test_volume_of_a_network_by_its_geometric_sums():
    net = branching.BranchingNetwork(30, small=10)
    levels = 2 ** (np.arange(21) / 3)
    assert net.mass == pytest.approx(2.0**30 * (10 + levels.sum()), rel=1e-12)
    flat = branching.BranchingNetwork(200, dimension=2)
    assert branching.local_exponent(flat) == pytest.approx(2 / 3, abs=1e-9)
    # Cross-sections are conserved in large vessels; lengths fill space.
    count = 2.0 ** np.arange(31)
    area = count * net.radii() ** 2
    assert area[:21] == pytest.approx(np.full(21, area[0]))
    assert count * net.lengths() ** 3 == pytest.approx(np.full(31, 2.0**30))


def test_cities():
    rows = published.cities()
    kinds = published.by_kind(rows)
    assert {k: len(v) for k, v in kinds.items()} == {
        "superlinear": 14,
        "linear": 5,
        "sublinear": 4,
    }
    theory = published.city_theory()
    roads = next(r for r in rows if r.quantity == "road surface")
    assert theory == pytest.approx({"land area": 2 / 3, "infrastructure": 5 / 6, "outputs": 7 / 6})
    assert roads.exponent.covers(theory["infrastructure"])
    assert all(r.exponent.covers(r.exponent.value) for r in rows)


def test_brains():
    for row in published.brains()[:2]:
        checked = consistent(row.exponent.value, row.r2, row.n)
        assert checked["lo"] == pytest.approx(row.exponent.lo, abs=0.02)
    # None of them is Kleiber's exponent.
    assert not published.brains()[1].exponent.covers(0.75)
    assert not published.brains()[2].exponent.covers(0.75)


def test_highways_and_neocortex():
    city, cortex = published.highways_and_cortex()
    assert list(city) == list(cortex)
    assert len(city) == 8
    for table in (city, cortex):
        a = {name: e.value for name, e in table.items()}
        assert a["leaves"] == pytest.approx(a["conductors"] + a["leaves per conductor"])
        whole = a["conductors"] + 0.5 + a["diameter"]
        assert a["surface of conductors"] == pytest.approx(whole)
    assert compare(city, cortex)[0].agree


def test_wrong_sizes_are_refused():
    with pytest.raises(al.InputError, match="small must lie between 0 and 3; got 4"):
        branching.BranchingNetwork(3, small=4)
    with pytest.raises(al.InputError, match="span 3 networks"):
        branching.finite_size_exponent(0.1)
    with pytest.raises(al.InputError, match="path must be positive"):
        published.city_theory(path=0)
