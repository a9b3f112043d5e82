"""Known ranks, over prime fields and in floating point."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from allometry import measure
from allometry._core.errors import InputError
from allometry.measure.prime_field_rank import PRIMES
from allometry.models.polynomial import (
    Fractional,
    LinearAttention,
    Mixed,
    Mixer,
    PolynomialAttention,
    PolynomialNetwork,
)
from allometry.models.polynomial_degree import (
    best_degree,
    best_range,
    best_words,
    parameters,
    rank_attention,
    rank_bounds,
    rank_lower,
    rank_narrow,
    rank_upper,
)
from allometry.targets import high_rank_functions

FIELD = measure.Field()


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def network_rank(m, width, degrees, **options):
    net = PolynomialNetwork(2 * m, width, degrees, None)
    measure.generic_(net, FIELD, rng(3))
    found = measure.separation_rank(
        lambda x, field: net(x, field)[:, 0], range(m), 2 * m, **options
    )
    assert found.exact
    return found.value


def token_rank(model, tokens, width, **options):
    """Half of the tokens on each side, the output token on the first."""
    measure.generic_(model, FIELD, rng(4))
    found = measure.separation_rank(
        lambda x, field: model(x.reshape(len(x), tokens, width), field)[:, 0, 0],
        range(tokens * width // 2),
        tokens * width,
        **options,
    )
    assert found.exact
    return found.value


# The rank itself


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 40), st.integers(0, 10**6))
def test_rank_of_products_of_random_matrices(rows, columns, inner, seed):
    """Modulo p, of a product through `inner`: the least of the sizes, as of random matrices."""
    g = np.random.default_rng(seed)
    left = g.integers(-(2**19), 2**19, (rows, inner)).astype(float)
    right = g.integers(-(2**19), 2**19, (inner, columns)).astype(float)
    p = PRIMES[0]
    product = np.zeros((rows, columns))
    for k in range(inner):
        product = np.mod(product + np.mod(np.outer(left[:, k], right[k]), p), p)
    assert measure.prime_rank(product) == min(rows, columns, inner)


@pytest.mark.parametrize("shape", [(7, 300), (300, 7), (200, 200)])
def test_rank_beyond_one_panel_equals_sympy_free_elimination(shape):
    """Against elimination with Python's whole numbers."""
    g = np.random.default_rng(1)
    a = g.integers(0, 3, shape).astype(float)
    a[3] = a[1] + 2 * a[2]
    a[:, 5] = 0
    assert measure.prime_rank(a) == slow_rank(a.astype(int).tolist(), PRIMES[0])


def slow_rank(a, p):
    rank = 0
    for j in range(len(a[0])):
        pivot = next((i for i in range(rank, len(a)) if a[i][j] % p), None)
        if pivot is None:
            continue
        a[rank], a[pivot] = a[pivot], a[rank]
        inverse = pow(a[rank][j], -1, p)
        for i in range(rank + 1, len(a)):
            f = a[i][j] * inverse % p
            if f:
                a[i] = [(x - f * y) % p for x, y in zip(a[i], a[rank], strict=True)]
        rank += 1
    return rank


def test_rank_drops_only_modulo_the_prime():
    assert measure.prime_rank(np.diag([1.0, 7.0, 2.0]), 7) == 2
    assert measure.prime_rank(np.diag([1.0, 7.0, 2.0])) == 3
    with pytest.raises(InputError, match="hold whole numbers"):
        measure.prime_rank(np.array([[0.5]]))


def boolean(n, f):
    bits = list(itertools.product([0, 1], repeat=n))
    return np.array([[float(f(a, b)) for b in bits] for a in bits])


@pytest.mark.parametrize(
    ("matrix", "rank"),
    [
        (boolean(4, lambda a, b: a == b), 16),
        (boolean(4, lambda a, b: a > b), 15),
        (boolean(4, lambda a, b: not any(x & y for x, y in zip(a, b, strict=True))), 16),
        (boolean(4, lambda a, b: (-1) ** sum(x & y for x, y in zip(a, b, strict=True))), 16),
        (boolean(4, lambda a, b: (-1) ** sum(a + b)), 1),
        (boolean(4, lambda a, b: sum(a + b) % 2), 2),
        (boolean(4, lambda a, b: sum(a + b) > 4), 4),
        (np.maximum.outer(np.arange(9.0), np.arange(9.0)), 9),
        (np.abs(np.subtract.outer(np.arange(9.0), np.arange(9.0))), 9),
    ],
)
def test_ranks_of_communication_matrices(matrix, rank):
    assert measure.prime_rank(matrix) == rank
    assert measure.numerical_rank(matrix).value == rank


# Functions whose rank is known

POLYNOMIALS = [
    high_rank_functions.product(3),
    high_rank_functions.sum_of_products(5),
    high_rank_functions.inner_power(3, 4),
    high_rank_functions.inner_power(4, 3, shift=1),
    high_rank_functions.power_sum(3, 4),
    high_rank_functions.total_power(2, 6),
    high_rank_functions.product_of_sums(5),
    high_rank_functions.matching(3, 3),
    high_rank_functions.determinant(4, 2),
    high_rank_functions.determinant(5, 1),
    high_rank_functions.determinant(4, 2, permanent=True),
    high_rank_functions.product_of_pairs(5),
    high_rank_functions.complete_homogeneous(3, 4),
    high_rank_functions.chebyshev_inner(3, 5),
    high_rank_functions.chebyshev_inner(4, 3, scale=12),
    high_rank_functions.elementary(3, 2),
    high_rank_functions.elementary(3, 5),
]


@pytest.mark.parametrize("f", POLYNOMIALS, ids=lambda f: f.name)
def test_teachers_have_the_rank_they_say(f):
    found = measure.separation_rank(f, f.partition, f.inputs)
    assert found.exact
    assert found.value == f.rank


@pytest.mark.parametrize("q", range(1, 10))
@pytest.mark.parametrize("h", [2, 3, 5])
def test_powers_of_inner_products_for_every_rank_up_to_two_thousand(h, q):
    f = high_rank_functions.inner_power(h, q)
    if f.rank <= 2000:
        assert measure.separation_rank(f, f.partition, f.inputs).value == f.rank


@pytest.mark.parametrize("k", [2, 5])
def test_functions_that_are_no_whole_polynomials(k):
    g = rng(1)
    points = 2 * torch.rand(2, 40, 1, generator=g) - 1
    f = high_rank_functions.chebyshev(k)
    assert measure.numerical_rank(measure.matricization(f, *points).numpy()).value == k + 1
    waves = high_rank_functions.random_smooth(2, k)
    points = torch.randn(2, 40, 2, generator=g)
    assert measure.numerical_rank(measure.matricization(waves, *points).numpy()).value == 2 * k


def test_chebyshev_of_an_inner_product_is_what_its_name_says():
    x = torch.rand(30, 6, generator=rng()) - 0.5
    z = (x[:, :3] * x[:, 3:]).sum(1) / 2
    torch.testing.assert_close(
        high_rank_functions.chebyshev_inner(3, 5, scale=2)(x) / 2**5, torch.cos(5 * torch.acos(z))
    )


@pytest.mark.parametrize(("k", "h"), [(1, 4), (1, 5), (2, 4), (2, 3)])
def test_halves_of_words_of_brackets(k, h):
    """Dyck_k parted in the middle: words of balanced brackets, 0/1; ranks by counting."""

    def balanced(word):
        stack = []
        for symbol in word:
            if symbol < k:
                stack.append(symbol)
            elif not stack or stack.pop() != symbol - k:
                return False
        return not stack

    halves = list(itertools.product(range(2 * k), repeat=h))
    matrix = np.array([[float(balanced(a + b)) for b in halves] for a in halves])
    expected = sum(k**j for j in range(h + 1) if (j - h) % 2 == 0)
    assert measure.prime_rank(matrix) == expected
    if k == 1:
        assert expected == h // 2 + 1


def test_models_are_taken_as_they_are():
    """Whole weights: exact. Others, and what is no polynomial: singular values, said so."""
    net = PolynomialNetwork(2, 2, [2, 2])
    found = measure.separation_rank(net, [0])
    assert not found.exact
    assert "singular values above 1e-10" in found.method
    measure.generic_(net, FIELD, rng(3))
    found = measure.separation_rank(net, [0])
    assert (found.value, found.exact) == (5, True)
    waves = high_rank_functions.random_smooth(2, 3)
    found = measure.separation_rank(waves, waves.partition)
    assert (found.value, found.exact) == (6, False)
    assert measure.separation_rank(lambda x: x[:, 0] * x[:, 1] + x[:, 0], [0], 2).value == 1
    with pytest.raises(InputError, match=r"separation_rank\.inputs must be given"):
        measure.separation_rank(lambda x: x[:, 0], [0])


def test_a_rank_above_the_most_points_is_only_a_lower_bound():
    f = high_rank_functions.product_of_sums(6)
    found = measure.separation_rank(f, f.partition, f.inputs, most=40)
    assert not found.exact
    assert found.interval == (40, math.inf)


def test_sides_may_be_any():
    """(x0 x2 + x1 x3)^2 has rank three however its four inputs are parted."""
    f = high_rank_functions.inner_power(2, 2)
    assert measure.separation_rank(f, [0, 1], 4).value == 3
    assert measure.separation_rank(f, [0, 2], 4).value == 3
    assert measure.separation_rank(f, [0], 4).value == 3
    with pytest.raises(InputError, match="leave inputs of 0"):
        measure.separation_rank(f, [0, 1, 2, 3], 4)


def test_templates_are_all_assignments():
    templates = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    rows = measure.template_rows(templates, 2)
    assert rows.shape == (9, 4)
    assert len({tuple(r) for r in rows.tolist()}) == 9
    inner = measure.matricization(lambda x: (x[:, :4] * x[:, 4:]).sum(1), rows, rows)
    torch.testing.assert_close(inner, rows @ rows.T)


# Networks


@pytest.mark.parametrize(("d", "L"), [(2, 1), (2, 3), (2, 4), (3, 2), (3, 3), (4, 2)])
def test_scalar_sides_have_rank_degree_plus_one(d, L):
    assert network_rank(1, 2, [d] * L) == d**L + 1


@pytest.mark.parametrize(("d", "L"), [(2, 2), (2, 3), (3, 2), (4, 1), (2, 4)])
def test_width_one_with_wide_inputs(d, L):
    assert network_rank(d, 1, [d] * L) == rank_narrow(d, L) == (d ** (L - 1) + 1) ** d


@pytest.mark.parametrize(
    ("width", "degrees", "rank"),
    [(1, [2, 2], 9), (1, [4], 16), (1, [2, 2, 2], 25), (1, [3, 3], 64), (2, [2, 2, 2], 105),
     (2, [3, 3], 354), (1, [4, 4], 625)],
)  # fmt: skip
def test_wide_inputs(width, degrees, rank):
    assert network_rank(8, width, degrees) == rank


@pytest.mark.parametrize(("d", "rank"), [(2, 1089), (3, 1722), (4, 1089)])
def test_generic_stacks_at_twelve_forms_are_largest_at_three(d, rank):
    assert (
        network_rank(2, 2, [d] * (12 // d), start=rank + 12)
        == rank
        == rank_upper(d ** (12 // d), 2)
    )
    assert rank_lower(d, 12 // d, 2) <= rank


@pytest.mark.parametrize("width", [1, 2, 3, 5])
def test_one_hadamard_pooled_layer_has_rank_width_plus_one(width):
    assert token_rank(PolynomialAttention(width, 3, 1), 2, width) == width + 1


@pytest.mark.parametrize(("d", "L"), [(2, 3), (3, 2), (3, 3), (4, 2)])
def test_attention_of_width_one(d, L):
    hadamard = token_rank(PolynomialAttention(1, d, L), 2, 1)
    assert hadamard == (d**L - 1) // (d - 1) + 1 == rank_attention(d, L)
    multi = token_rank(PolynomialAttention(1, d, L, "multi"), 2, 1)
    assert multi == d**L == rank_attention(d, L, "multi")


@pytest.mark.parametrize(
    ("pooled", "ranks"), [("multi", (1088, 1721, 1088)), ("hadamard", (1088, 861, 363))]
)
def test_whether_three_is_best_depends_on_the_form_of_attention(pooled, ranks):
    for d, rank in zip((2, 3, 4), ranks, strict=True):
        model = PolynomialAttention(2, d, 12 // d, pooled)
        assert token_rank(model, 2, 2, start=rank + 12, primes=PRIMES[:1]) == rank


@pytest.mark.parametrize(("width", "rank"), [(1, 4), (2, 8), (3, 13)])
def test_multi_pooled_layers_of_degree_four(width, rank):
    assert token_rank(PolynomialAttention(width, 4, 1, "multi"), 2, width) == rank


@pytest.mark.parametrize(("width", "rank"), [(2, 96), (3, 388)])
def test_two_multi_pooled_layers_of_degree_four(width, rank):
    assert token_rank(PolynomialAttention(width, 4, 2, "multi"), 4, width) == rank


def test_the_mixer():
    for depth in (1, 2, 4):
        assert token_rank(Mixer(4, 2, depth), 4, 2) == 2
    assert token_rank(Mixer(4, 2, 1, degree=2), 4, 2) == 20 == rank_upper(4, 4)
    assert token_rank(Mixer(4, 2, 2, degree=2), 4, 2, start=840) == 825 == rank_upper(16, 4)


def test_linear_attention_with_heads_of_size_one_is_hadamard_pooled():
    """The same weights, arranged: y_i = W_O[q_i o sum_j (k_j o v_j)]."""
    ours, pooled = LinearAttention(3, heads=3, depth=2), PolynomialAttention(3, 3, 2)
    with torch.no_grad():
        pooled.weight.copy_(ours.weight[:, :3])
        pooled.output.copy_(ours.weight[:, 3])
    x = torch.randn(4, 5, 3, generator=rng())
    torch.testing.assert_close(ours(x), pooled(x))


def test_modulo_a_prime_and_over_the_reals_are_one_function():
    """Small whole numbers: what comes out modulo p is the residue of the real value."""
    net = PolynomialNetwork(3, 2, [2, 3], 1).double()
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.randint(-2, 3, p.shape, generator=rng(p.numel())))
    x = torch.randint(-3, 4, (50, 3), generator=rng()).double()
    torch.testing.assert_close(FIELD(net(x)), net(x, FIELD), rtol=0, atol=0)


def test_a_model_that_is_not_polynomial_refuses_a_field():
    for net in (
        PolynomialNetwork(2, 4, [2, 2], norm=True),
        PolynomialNetwork(2, 4, [2.5, 2], fractional=True),
        PolynomialNetwork(2, 4, [2], activation=torch.relu),
    ):
        with pytest.raises(InputError, match="not a polynomial"):
            net(torch.ones(1, 2), FIELD)


def test_real_degrees():
    layer = Mixed(4, 10, math.e, rng())
    assert [p.degree for p in layer.parts] == [3, 2]
    assert layer.degree == 2.7
    assert sum(p.numel() for p in layer.parameters()) == 7 * 3 * 5 + 3 * 2 * 5
    x = torch.randn(8, 4, generator=rng())
    fractional = Fractional(4, 10, 3.0, rng(1))
    third = torch.zeros(10, 4)
    for unit, place in itertools.product(range(10), range(4)):
        third[unit, (unit + place) % 4] = fractional.third[unit, place]
    product = fractional.forms(x) * (x @ third.T + fractional.third_bias)
    torch.testing.assert_close(fractional(x), product, atol=1e-4, rtol=1e-4)
    fractional(x).sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in fractional.parameters())
    apportioned = Fractional(8, 8, math.e, rng(2))
    assert sum(p.numel() for p in apportioned.parameters()) == 2 * 8 * 9 + 8 * 7
    with pytest.raises(InputError, match="lie above 2 and at most at 3"):
        Fractional(8, 8, 3.5, rng(2))


def test_tied_forms_reach_the_same_rank_with_fewer_parameters():
    for d, rank in [(2, 65), (3, 82), (4, 65)]:
        net = PolynomialNetwork(2, 2, [d] * (12 // d), None, tied=True)
        measure.generic_(net, FIELD, rng(5))
        found = measure.separation_rank(lambda x, field, net=net: net(x, field)[:, 0], [0], 2)
        assert found.value == rank
        assert sum(p.numel() for p in net.parameters()) * d == parameters(2, 2, [d] * (12 // d))


def test_heads_are_summed():
    """Two heads of one unit are two units and a map between them."""
    net = PolynomialNetwork(3, 2, [2, 3], heads=3)
    measure.generic_(net, FIELD, rng(6))
    x = FIELD.draw(5, 3, rng=rng())
    first = net.layers[0](x, FIELD)
    assert first.shape == (5, 6)
    second = net.layers[1](FIELD(first @ net.mixes[0].T), FIELD)
    last = FIELD(FIELD(second @ net.mixes[1].T) @ net.readout.T + net.readout_bias)
    torch.testing.assert_close(net(x, FIELD), last, rtol=0, atol=0)


# Formulas


def test_the_best_degree_depends_on_the_cost():
    assert best_degree() == pytest.approx(math.e)
    for c, best in [(-1, 2), (-0.3, 2), (-0.28, 3), (0, 3), (0.81, 3), (0.83, 4), (1, 4)]:
        assert best_degree(c, whole=True) == best
    assert best_range(3) == pytest.approx((-0.290489, 0.818842), abs=1e-6)
    # ln d / d: 3's edge over 2, and e's over 3.
    h = lambda d: math.log(d) / d  # noqa: E731
    assert h(2) == pytest.approx(h(4))
    assert h(3) / h(2) - 1 == pytest.approx(0.0566, abs=5e-5)
    assert h(math.e) / h(3) - 1 == pytest.approx(0.00457, abs=5e-6)


def test_the_words_say_where_three_is_best():
    for c, best in [(-1, 2), (0, 3), (1, 4), (0.5, 3)]:
        first, last = best_words(c)
        assert f"fastest at degree {best}" in first
        assert "only for -0.290 < c < 0.819" in last
        assert "5.7 % ahead of 2 and 4" in last
        assert "0.46 % behind e" in last
    assert len(best_words(-1, 0, 1)) == 4


@pytest.mark.parametrize("degrees", [(2, 2), (3, 2), (2, 3), (2, 2, 2)])
def test_bounds_of_any_stack_hold(degrees):
    low, high = rank_bounds(degrees, 2)
    assert low <= network_rank(2, 2, degrees) <= high
    assert rank_bounds([3, 3, 3], 2)[0] == rank_lower(3, 3, 2)


@pytest.mark.parametrize("outputs", [1, 3])
def test_parameters_are_counted(outputs):
    net = PolynomialNetwork(2, 1, [2, 2, 2], outputs)
    assert sum(p.numel() for p in net.parameters()) == parameters(2, 1, [2, 2, 2], outputs=outputs)


# Epsilon-ranks


def test_epsilon_rank_of_flat_spectra():
    eye = np.eye(64)
    for epsilon in (0.0, 0.1, 0.5, 0.9):
        assert measure.epsilon_rank(eye, epsilon) == math.ceil(64 * (1 - epsilon**2) - 1e-9)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 6), st.floats(0.01, 0.5), st.integers(0, 10**6))
def test_lower_bounds_never_exceed_a_rank_that_is_near(rank, epsilon, seed):
    """A matrix of known rank, moved by less than epsilon: no bound may be above that rank."""
    g = np.random.default_rng(seed)
    near = g.normal(size=(12, rank)) @ g.normal(size=(rank, 15))
    moved = near + epsilon * g.uniform(-1, 1, near.shape)
    assert measure.epsilon_rank_lower(moved, epsilon) <= rank
    mean = float(np.abs(moved - near).mean())
    assert measure.epsilon_rank_lower(moved, mean, "mean") <= rank


def test_lower_bounds_are_sharp_without_slack():
    g = np.random.default_rng(0)
    a = g.normal(size=(20, 4)) @ g.normal(size=(4, 20))
    assert measure.epsilon_rank_lower(a, 1e-9) == 4
    hadamard = np.array([[1.0]])
    for _ in range(5):
        hadamard = np.block([[hadamard, hadamard], [hadamard, -hadamard]])
    # Every matrix within 1/2 of a 32 x 32 Hadamard matrix: the tail gives 32 (1 - 1/4).
    assert measure.epsilon_rank_lower(hadamard, 0.5) >= 24
