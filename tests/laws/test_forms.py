"""Every form: its Jacobian, its letters, recovery of its own curve."""

import numpy as np
import pytest

import allometry as al
from allometry.laws.form_names import FORMS, MAKERS

TRUTHS = {
    "power": {"k": 8.0, "a": -0.2},
    "floor": {"E": 1.5, "A": 30.0, "alpha": 0.4},
    "chinchilla": {"E": 1.5, "A": 100.0, "alpha": 0.4, "B": 300.0, "beta": 0.3},
    "coupled": {"E": 1.5, "A": 2e3, "alpha": 0.6, "B": 5e3, "beta": 0.5, "gamma": 0.7},
    "kaplan": {"alpha_N": 0.076, "alpha_D": 0.103, "N_c": 6.4e13, "D_c": 1.8e13},
    "frontier": {"E": 1.5, "K": 150.0, "gamma": 0.12, "G": 0.2, "a": 0.4, "b": 0.3},
    "frontier_power": {"K": 30.0, "gamma": 0.06, "G": 0.2, "a": 0.2, "b": 0.15},
    "m4": {"eps_inf": 0.3, "eps_0": 2.0, "alpha": 0.8, "beta": 1e3, "c": -0.6},
    "logistic": {"a": 0.5, "b": 1.5, "c1": 0.5, "d1": 1e5, "f1": 0.6},
    "broken": {"a": 0.5, "b": 6.0, "c0": 0.15, "c1": 0.3, "d1": 1e6, "f1": 0.5},
}


def construct(name):
    return MAKERS[name]("D" if name in ("m3", "m4", "logistic", "broken", "broken2") else "N")


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_jacobian_is_the_derivative(name):
    form = construct(name)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((len(form.variables), 11)) + (0 if form.centred else 15)
    theta = form.starts(X, rng.standard_normal(11) * 0.1 + 1, 5, rng)
    _, J = form.evaluate(theta, X)
    for j in range(form.p):
        step = np.zeros(form.p)
        step[j] = 1e-6
        slope = (form.value(theta + step, X) - form.value(theta - step, X)) / 2e-6
        # Central differences of step h are right to h^2 and to rounding / h, both under 1e-7.
        np.testing.assert_allclose(J[:, j], slope, atol=1e-7)


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_prior_and_letters_have_one_entry_per_parameter(name):
    form = construct(name)
    X = np.linspace(-1, 1, 9)[None].repeat(len(form.variables), 0)
    mean, sd = form.prior(X, np.linspace(1, 0.5, 9))
    assert mean.shape == sd.shape == (form.p,)
    assert (sd > 0).all()
    assert tuple(form.public(mean[None], np.zeros(len(form.variables)))) == form.letters


def grid(name):
    rng = np.random.default_rng(1)
    if len(construct(name).variables) == 1:
        return {construct(name).variables[0]: np.geomspace(1e3, 1e9, 40)}
    return {"N": 10 ** rng.uniform(6, 9, 60), "D": 10 ** rng.uniform(8, 11, 60)}


def truth(name, at):
    t = TRUTHS[name]
    x = next(iter(at.values()))
    if name == "power":
        return t["k"] * x ** t["a"]
    if name == "floor":
        return t["E"] + t["A"] / x ** t["alpha"]
    if name == "chinchilla":
        return t["E"] + t["A"] / at["N"] ** t["alpha"] + t["B"] / at["D"] ** t["beta"]
    if name == "coupled":
        both = t["A"] / at["N"] ** t["alpha"] + t["B"] / at["D"] ** t["beta"]
        return t["E"] + both ** t["gamma"]
    if name == "kaplan":
        return al.laws.kaplan.loss(at["N"], at["D"])
    if name.startswith("frontier"):
        a, b, C = t["a"], t["b"], at["N"] * at["D"]
        u = at["N"] / (t["G"] * C ** (b / (a + b)))
        return t.get("E", 0.0) + t["K"] * C ** -t["gamma"] * (b * u**-a + a * u**b) / (a + b)
    if name == "m4":
        from scipy.optimize import brentq

        def gap(y, v):
            return (y - t["eps_inf"]) / (t["eps_0"] - y) ** t["alpha"] - t["beta"] * v ** t["c"]

        ends = t["eps_inf"] + 1e-12, t["eps_0"] - 1e-12
        return np.array([brentq(gap, *ends, args=(v,), xtol=1e-14) for v in x])
    y = t["b"] * x ** -t.get("c0", 0.0)
    return t["a"] + y * (1 + (x / t["d1"]) ** (1 / t["f1"])) ** (-t["c1"] * t["f1"])


@pytest.mark.parametrize("name", sorted(TRUTHS))
def test_a_form_recovers_its_own_curve(name):
    at = grid(name)
    law = al.laws.fit(at | {"loss": truth(name, at)}, name, bootstrap=0, delta=float("inf"))
    for letter, value in TRUTHS[name].items():
        # Without noise the error is due to the flatness of the optimum: 1e-3 in the worst letter.
        assert law.params[letter].value == pytest.approx(value, rel=2e-3), letter


def test_the_frontier_form_is_additive_where_its_exponents_agree():
    """Hoffmann et al., Eqs. (2) and (4): E + A/N^a + B/D^b has gamma = ab/(a + b)."""
    t = TRUTHS["chinchilla"]
    a, b = t["alpha"], t["beta"]
    G = (a * t["A"] / (b * t["B"])) ** (1 / (a + b))
    K = t["A"] * G**-a * (a + b) / b
    at = grid("chinchilla")
    C = at["N"] * at["D"]
    u = at["N"] / (G * C ** (b / (a + b)))
    by_hand = t["E"] + K * C ** (-a * b / (a + b)) * (b * u**-a + a * u**b) / (a + b)
    np.testing.assert_allclose(by_hand, truth("chinchilla", at), rtol=1e-12)
    law = al.laws.fit(at | {"loss": by_hand}, "frontier", bootstrap=0, delta=float("inf"))
    found = {k: e.value for k, e in law.params.items()}
    assert found["gamma"] == pytest.approx(a * b / (a + b), rel=2e-3)
    assert found["a"] == pytest.approx(a, rel=2e-3)
    assert found["G"] == pytest.approx(G, rel=2e-2)


def test_every_form_is_listed_and_can_be_constructed():
    assert FORMS[0] == "auto"
    for name in FORMS[1:]:
        assert construct(name).equation.startswith(("L = ", "(L - "))


def test_repeated_data_contribute_less():
    form = MAKERS["repeated"]("N")
    # Muennighoff et al.'s fit to C4; the additive law holds where nothing is repeated.
    theta = np.log([[1.87, 521.0, 0.353, 1488.0, 0.353, 15.39, 5.31]])

    def loss(n, d, u):
        return float(np.exp(form.value(theta, np.log([[n], [d], [u]])))[0, 0])

    plain = 1.87 + 521 / 1e9**0.353 + 1488 / 2e10**0.353
    assert loss(1e9, 2e10, 2e10) == pytest.approx(plain, rel=1e-12)
    assert loss(1e9, 2e10, 1e10) > plain
    effective = 1e10 + 1e10 * 15.39 * (1 - np.exp(-1 / 15.39))
    own = 521 / 3e8**0.353 + 1.87  # below the size that is optimal for the unique data
    assert loss(3e8, 2e10, 1e10) == pytest.approx(own + 1488 / effective**0.353, rel=1e-9)


def test_a_users_formula_fits():
    def mine(N, D, E=1.0, A=50.0, alpha=0.3, shift=0.0):
        return E + A / N**alpha + shift / D**0.5

    rng = np.random.default_rng(0)
    N, D = 10 ** rng.uniform(3, 6, 30), 10 ** rng.uniform(4, 7, 30)
    loss = 1.4 + 20 / N**0.4 - 3 / D**0.5
    law = al.laws.fit({"N": N, "D": D, "loss": loss}, mine, bootstrap=20)
    assert law.form == "mine"
    assert law.params["shift"].value == pytest.approx(-3, rel=1e-3)
    assert law.params["alpha"].value == pytest.approx(0.4, rel=1e-3)


def test_a_formula_without_defaults_is_refused():
    with pytest.raises(al.InputError, match="finite default"):
        al.laws.fit({"N": [1, 2, 3], "loss": [3, 2, 1]}, lambda N, k: k * N)


def test_steps_recover_the_published_constants():
    """Kaplan's Eq. (1.6) fitted to its own values gives Table 3 back."""
    rng = np.random.default_rng(2)
    N, S = 10 ** rng.uniform(6, 9, 60), 10 ** rng.uniform(3, 5.5, 60)
    loss = al.laws.kaplan.loss_of_steps(N, S)
    law = al.laws.fit({"N": N, "S": S, "loss": loss}, "steps", bootstrap=0, delta=float("inf"))
    table = {"alpha_N": 0.077, "alpha_S": 0.76, "N_c": 6.5e13, "S_c": 2.1e3}
    for name, value in table.items():
        assert law.params[name].value == pytest.approx(value, rel=1e-3), name
    assert float(law(N=1e10, S=1e6)) == pytest.approx(
        float(al.laws.kaplan.loss_of_steps(1e10, 1e6)), rel=1e-5
    )


def test_transfer_is_recovered_from_losses():
    """Fine-tuned losses of the published law give its constants back."""
    rng = np.random.default_rng(3)
    N, D = 10 ** rng.uniform(6, 9, 80), 10 ** rng.uniform(6, 10, 80)

    def loss(N, D):
        return 1.2 + 200 / N**0.35 + 500 / D**0.35

    scratch = al.laws.fit(
        {"N": N, "D": D, "loss": loss(N, D)}, "chinchilla", bootstrap=50, delta=float("inf")
    )
    transferred = al.laws.kaplan.effective_data_transferred(D[:40], N[:40])
    law = al.laws.transfer(
        scratch, N=N[:40], D=D[:40], loss=loss(N[:40], D[:40] + transferred), bootstrap=50
    )
    for name, value in {"k": 1.9e4, "alpha": 0.18, "beta": 0.38}.items():
        # The scratch law is inverted on a grid of 0.04 e-folds, linear between.
        assert law.params[name].value == pytest.approx(value, rel=0.02), name
    assert not law.warnings
    worse = loss(N[:40], D[:40] + transferred)
    worse[3] = loss(N[3], D[3] / 2)
    law = al.laws.transfer(scratch, N=N[:40], D=D[:40], loss=worse, bootstrap=0)
    assert any("1 run was left out (row 3)" in w for w in law.warnings)


def test_a_law_refuses_unknown_variables():
    N = np.geomspace(1e3, 1e6, 9)
    law = al.laws.fit({"N": N, "loss": 1 + 30 / N**0.5}, "floor", bootstrap=0)
    with pytest.raises(al.InputError, match="evaluated at N"):
        law(M=3.0)


def test_an_exponent_that_overflows_gives_no_warning():
    """A search may try it; numpy's warnings reached the terminal."""
    from allometry.laws.learning_curves import Sigmoid

    theta = np.array([[0.0, 1.0, 800.0, 0.0, 1.0]])
    with np.errstate(over="ignore"):  # as the solver does
        assert not np.isfinite(Sigmoid().value(theta, np.linspace(-2, 2, 5)[None])).all()
