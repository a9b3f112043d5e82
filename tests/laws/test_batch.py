"""Fits in parallel equal fits one by one."""

import numpy as np
import pytest

from allometry import laws
from allometry._core.errors import InputError

D = np.geomspace(1e3, 1e6, 12)


def curve(seed):
    rng = np.random.default_rng(seed)
    return {"D": D, "loss": (1.5 + 40 / D**0.5) * np.exp(0.003 * rng.standard_normal(12))}


def test_two_processes_give_what_fit_gives():
    tables = [curve(0), curve(1), {"D": D[:2], "loss": [3.0, 2.0]}]
    found = laws.fit_many(tables, ["power", "floor"], workers=2, bootstrap=30)
    assert [list(laws_) for laws_ in found] == [["power", "floor"]] * 3
    for table, got in zip(tables[:2], found, strict=False):
        for name, law in got.items():
            alone = laws.fit(table, name, bootstrap=30)
            assert law.to_dict() == alone.to_dict()
            for mine, theirs in zip(law.band(D=1e7), alone.band(D=1e7), strict=True):
                assert mine == theirs
    for error in found[2].values():
        assert isinstance(error, InputError)
        assert "at least 3 runs" in str(error)


def test_no_tables_no_laws():
    assert laws.fit_many([], ["floor"]) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"forms": []}, "at least one form"),
        ({"forms": ["floor", "floor"]}, "differ"),
        ({"workers": 0}, "at least 1"),
    ],
)
def test_bad_requests_are_refused(options, words):
    with pytest.raises(InputError, match=words):
        laws.fit_many([curve(0)], **options)


def test_a_formula_has_the_name_of_its_function():
    def mine(D, a, b):
        return a / D**b

    (found,) = laws.fit_many([curve(0)], [mine], workers=1, bootstrap=0)
    assert list(found) == ["mine"]
