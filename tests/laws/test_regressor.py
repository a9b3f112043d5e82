"""The law as a regressor: scikit-learn's conformance suite, pipelines, cross-validation."""

import sys
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import estimator_checks_generator

import allometry as al
from allometry import InputError, laws
from allometry._core.errors import MissingExtraError
from allometry.laws.regressor import ScalingLawRegressor

WITHOUT_FITS = (
    "check_complex_data",
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimator_sparse_array",
    "check_estimator_sparse_matrix",
    "check_estimator_sparse_tag",
    "check_estimator_tags_renamed",
    "check_estimators_empty_data_messages",
    "check_estimators_unfitted",
    "check_mixin_order",
    "check_no_attributes_set_in_init",
    "check_valid_tag_types",
)
"""Checks that run on every push; `make slow` runs the other 35 or so, which fit laws."""

ENVIRONMENT = {"check_array_api_input": "it runs only if SCIPY_ARRAY_API is set"}
"""Checks that do not apply. No check of scikit-learn fails."""


def checks(*, often: bool) -> list[Any]:
    found: Any = estimator_checks_generator(ScalingLawRegressor(starts=4))
    named = [(check.func.__name__, estimator, check) for estimator, check in found]
    return [
        pytest.param(estimator, check, id=name)
        for name, estimator, check in named
        if name not in ENVIRONMENT and (name in WITHOUT_FITS) == often
    ]


@pytest.mark.parametrize(("estimator", "check"), checks(often=True))
@pytest.mark.filterwarnings("ignore")  # the suite provokes warnings
def test_it_passes_the_suite_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.parametrize(("estimator", "check"), checks(often=False))
@pytest.mark.filterwarnings("ignore")
def test_it_passes_the_other_checks_too(estimator, check):
    check(estimator)


def table(count=24, seed=0):
    rng = np.random.default_rng(seed)
    N, D = np.exp(rng.uniform(14, 21, count)), np.exp(rng.uniform(18, 25, count))
    loss = (1.7 + 400 / N**0.34 + 410 / D**0.28) * np.exp(rng.normal(0, 0.003, count))
    return np.stack([N, D], 1), loss


def test_it_gives_the_law_of_fit():
    X, y = table()
    model = ScalingLawRegressor("chinchilla", variables=["N", "D"], starts=4).fit(X, y)
    law = laws.fit({"N": X[:, 0], "D": X[:, 1], "loss": y}, "chinchilla", bootstrap=0, starts=4)
    assert np.array_equal(model.predict(X), law(N=X[:, 0], D=X[:, 1]))
    value, ends = model.predict(X, return_interval=True)
    assert np.array_equal(value, model.predict(X))
    inside = (ends[:, 0] <= y) & (y <= ends[:, 1])
    assert inside.mean() > 0.9
    assert laws.ScalingLawRegressor is ScalingLawRegressor


def test_cross_validation_prefers_the_law():
    X, y = table()
    law = ScalingLawRegressor("chinchilla", variables=["N", "D"], starts=4)
    folds = KFold(3, shuffle=True, random_state=0)
    ours = cross_val_score(law, X, y, cv=folds)
    line = make_pipeline(FunctionTransformer(np.log), LinearRegression())
    assert ours.min() > 0.99
    assert ours.mean() > cross_val_score(line, X, y, cv=folds).mean()


def test_it_ends_a_pipeline_and_is_searched_over():
    X, y = table()
    compute = np.stack([X[:, 0], 6 * X[:, 0] * X[:, 1]], 1)
    data_of = FunctionTransformer(lambda nc: np.stack([nc[:, 0], nc[:, 1] / 6 / nc[:, 0]], 1))
    model = make_pipeline(data_of, ScalingLawRegressor(variables=["N", "D"], starts=4))
    forms = {"scalinglawregressor__form": ["power", "chinchilla"]}
    found: Any = GridSearchCV(model, forms, cv=3).fit(compute, y)
    assert found.best_params_ == {"scalinglawregressor__form": "chinchilla"}
    assert found.score(compute, y) > 0.99


def test_columns_of_a_frame_name_the_variables():
    pandas = pytest.importorskip("pandas")
    X, y = table()
    frame = pandas.DataFrame({"params": X[:, 0], "tokens": X[:, 1]})
    model = ScalingLawRegressor("E + A/params^a + B/tokens^b", starts=8).fit(frame, y)
    assert set(model.law_.params) == {"E", "A", "a", "B", "b"}
    assert model.score(frame, y) > 0.99
    copy: Any = clone(model)
    assert copy.get_params() == model.get_params()


def test_it_refuses_in_words(monkeypatch):
    X, y = table()
    with pytest.raises(InputError, match="variables must name the 2 columns of X"):
        ScalingLawRegressor(variables=["N"]).fit(X, y)
    with pytest.raises(NotFittedError):
        ScalingLawRegressor().predict(X)
    with pytest.raises(ValueError, match="minimum of 3 is required"):
        ScalingLawRegressor().fit(X[:2], y[:2])
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.delitem(sys.modules, "allometry.laws.regressor")
    monkeypatch.delitem(vars(al.laws), "ScalingLawRegressor", raising=False)
    with pytest.raises(MissingExtraError, match=r"allometry\[sklearn\]"):
        _ = al.laws.ScalingLawRegressor
