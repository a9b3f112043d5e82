"""Points: densities against scipy and quadrature, draws against densities, entropies."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.datasets import make_moons

from allometry._core.errors import InputError
from allometry.targets import NumericTable, points

PLANE = [
    points.TwoMoons(0.15),
    points.Spirals(0.3),
    points.Rings(noise=0.1),
    points.Checkerboard(),
    points.eight_gaussians(),
    points.ring(5, 1.0, 0.1),
    points.grid(3, 1.0, 0.1),
    points.random_mixture(2, 4),
    points.Banana(),
    points.Funnel(2, 0.8),
]
SPACE = [points.Funnel(5, 1.0), points.Banana(dim=4), points.random_mixture(6, 5)]


@pytest.mark.parametrize("law", PLANE, ids=lambda law: law.name)
def test_density_integrates_to_one(law):
    low, high = law.box
    wide = 0.5 * (high - low)
    axes = [torch.linspace(a - w, b + w, 201) for a, b, w in zip(low, high, wide, strict=True)]
    cell = math.prod((axis[1] - axis[0]).item() for axis in axes)
    mass = law.log_prob(torch.cartesian_prod(*axes)).exp().sum().item() * cell
    # The board's edges fall between grid points; the others are smooth.
    assert mass == pytest.approx(1, abs=0.02 if law.name == "checkerboard" else 2e-3)


@pytest.mark.parametrize("law", PLANE + SPACE, ids=lambda law: f"{law.name}{law.dim}")
def test_entropy_is_the_mean_surprise_of_draws(law):
    surprise = -law.log_prob(law.sample(10_000, seed=3))
    se = math.hypot(surprise.std().item() / 100, law.entropy.se)
    assert abs(surprise.mean().item() - law.entropy.value) < 5 * se + 1e-9


@pytest.mark.parametrize("law", PLANE, ids=lambda law: law.name)
def test_draws_follow_the_density(law):
    """Mass of random boxes: counted in draws, integrated from the density."""
    drawn = law.sample(20_000, seed=1).numpy()
    low, high = law.box
    rng = np.random.default_rng(0)
    for _ in range(5):
        a = rng.uniform(low, high)
        b = a + 0.4 * (high - low)
        share = ((drawn > a) & (drawn < b)).all(1).mean()
        u = (torch.from_numpy(np.stack(np.meshgrid(*[np.arange(100)] * 2), -1)) + 0.5) / 100
        places = torch.from_numpy(a) + u.reshape(-1, 2) * torch.from_numpy(b - a)
        mass = law.log_prob(places).exp().mean().item() * np.prod(b - a)
        slack = 0.01 if law.name == "checkerboard" else 1e-3
        assert abs(share - mass) < 5 * math.sqrt(max(mass, 1e-4) / 20_000) + slack


def test_two_moons_entropy_is_the_known_one():
    # The published figure is a Monte Carlo mean: a million draws would leave 9e-4.
    assert points.TwoMoons(0.05).entropy.value == pytest.approx(0.2897, abs=9e-4)


def test_two_moons_are_those_of_scikit_learn():
    theirs, _ = make_moons(5000, noise=0.05, random_state=0)
    ours = points.TwoMoons(0.05)
    surprise = -ours.log_prob(torch.from_numpy(theirs))
    assert abs(surprise.mean().item() - ours.entropy.value) < 5 * surprise.std().item() / 70


def test_mixture_against_scipy():
    law = points.Mixture([[0.0, 1.0, 2.0], [3.0, -1.0, 0.5]], [0.5, 2.0], [0.3, 0.7])
    x = law.sample(50, seed=2)
    parts = [
        w * stats.multivariate_normal(m.numpy(), s**2 * np.eye(3)).pdf(x.numpy())
        for w, m, s in zip(law.weights.tolist(), law.means, law.sd.tolist(), strict=True)
    ]
    np.testing.assert_allclose(law.log_prob(x).numpy(), np.log(sum(parts)), rtol=1e-12)


def test_rings_against_the_rice_distribution():
    law = points.Rings((1.5,), noise=0.3)
    rho = np.linspace(0.01, 3, 40)
    rice = stats.rice(1.5 / 0.3, scale=0.3).pdf(rho)
    ours = law.log_prob(torch.from_numpy(np.stack([rho, 0 * rho], 1))).exp().numpy()
    np.testing.assert_allclose(2 * np.pi * rho * ours, rice, rtol=1e-10)


def test_single_gaussian_entropy_is_scipys():
    law = points.Mixture([[0.0, 0.0, 0.0]], 1.7)
    truth = stats.multivariate_normal(np.zeros(3), 1.7**2 * np.eye(3)).entropy()
    assert law.entropy.value == pytest.approx(truth, rel=1e-12)
    assert law.entropy.exact


def test_separated_mixture_entropy_is_that_of_choice_plus_parts():
    law = points.grid(5, 2.0, 0.05)
    parts = math.log(25) + math.log(2 * math.pi * math.e * 0.05**2)
    assert law.entropy.value == pytest.approx(parts, abs=1e-8)


def test_pacgan_settings():
    ring, grid = points.ring(), points.grid()
    assert len(torch.unique(ring.means.round(decimals=9), dim=0)) == 8
    torch.testing.assert_close(ring.means.norm(dim=1), torch.ones(8))
    assert sorted(set(grid.means.flatten().tolist())) == [-4, -2, 0, 2, 4]
    assert (ring.sd[0].item(), grid.sd[0].item()) == (0.01, 0.05)
    near, distance = grid.nearest(grid.sample(4000))
    assert len(near.unique()) == 25
    # 98.89 % of a Gaussian of the plane lies within three standard deviations.
    assert abs((distance < 3).double().mean().item() - 0.9889) < 5 * math.sqrt(0.011 / 4000)


@pytest.mark.parametrize("law", PLANE + SPACE, ids=lambda law: f"{law.name}{law.dim}")
def test_spec_recreates_the_density(law):
    again = law.spec()
    x = law.sample(20)
    torch.testing.assert_close(again.log_prob(x), law.log_prob(x))
    assert again.spec == law.spec


@pytest.mark.parametrize("law", PLANE + SPACE, ids=lambda law: f"{law.name}{law.dim}")
def test_tails_are_not_nan(law):
    far = torch.full((1, law.dim), 40.0)
    assert not law.log_prob(far).isnan().any()


@given(step=st.integers(0, 50), size=st.integers(1, 40), rows=st.integers(1, 60))
def test_fixed_sets_are_gone_through_once_an_epoch(step, size, rows):
    target = points.Points(points.Banana(), size=rows, held_out=10)
    first = torch.cat([target.batch(s, size=1, seed=1) for s in range(rows)])
    torch.testing.assert_close(first.sort(0).values, target.split("train").sort(0).values)
    torch.testing.assert_close(
        target.batch(step, size=size, seed=2), target.batch(step, size=size, seed=2)
    )


def test_target_keeps_train_and_held_out_apart_and_describes_itself():
    target = points.Points(points.TwoMoons())
    fresh = target.batch(0, size=500, seed=0)
    for split in ("validation", "test"):
        assert not torch.isin(fresh[:, 0], target.split(split)[:, 0]).any()
    assert target.describe()["entropy"]["value"] == target.entropy.value
    assert target.spec() == target or target.spec().fingerprint == target.fingerprint
    with pytest.raises(InputError, match="size"):
        target.split("train")
    with pytest.raises(InputError, match="fingerprint must"):
        points.Points(points.TwoMoons(), fingerprint="0" * 64)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: points.TwoMoons(0), "noise must be positive"),
        (lambda: points.Checkerboard(3), "even"),
        (lambda: points.Mixture([[0.0]], -1), "sd must be positive"),
        (lambda: points.Mixture([[0.0], [1.0]], 1, [0.5, 0.6]), "sum to 1"),
        (lambda: points.Funnel(1), "at least 2"),
    ],
)
def test_invalid_input_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()


def _csv(tmp_path, text):
    path = tmp_path / "rows.csv"
    path.write_text(text)
    return str(path)


def test_a_table_with_decimal_commas_is_that_with_points(tmp_path):
    rng = np.random.default_rng(0)
    rows = [f"{x:.4f};{y:.2f};a, b" for x, y in rng.normal(size=(40, 2))]
    plain = NumericTable(_csv(tmp_path, "x;y;note\n" + "\n".join(rows)))
    commas = "x;y;note\n" + "\n".join(rows).replace(".", ",")
    table = NumericTable(_csv(tmp_path, commas))
    assert table.columns == ["x", "y"]
    assert torch.equal(table.train, plain.train)
    assert "decimal points" in table.notes[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x,y\n1,2,3\n4,5\n", "line 2: it has 3 cells, the header 2 names"),
        ("x,x\n1,2\n3,4\n", "name each column once"),
        ('x,y\n1,"3,142"\n2,"2,987"\n', "must say what its commas mean"),
        ("x\n" + "1" * 400 + "\n2\n", "."),
        ("", "empty file"),
        ("x\n", "no rows"),
    ],
)
def test_tables_that_are_refused(tmp_path, text, words):
    with pytest.raises(InputError, match=words):
        NumericTable(_csv(tmp_path, text))
