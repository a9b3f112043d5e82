"""The theorem's network: its error, its rate, its size, its refusals."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import allometry as al
from allometry.construct import compact, cost, universal, universal_construction
from allometry.targets import functions as F


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def test_error_halves_with_delta():
    """d = 1, n = 2: the slope of log error against log delta is 1 for a Lipschitz function."""
    for f in (F.attention, F.smooth(1, seed=2)):
        made = [universal(f, d=1, n=2, delta=1 / k) for k in (4, 8, 16)]
        errors = [m.certificate.d_p.value for m in made]
        slope = np.polyfit(np.log([1 / 4, 1 / 8, 1 / 16]), np.log(errors), 1)[0]
        assert abs(slope - 1) < 0.05
        assert [m.certificate.blocks for m in made] == [28, 84, 292]
        assert made[-1].certificate.parameters == 6716


def test_error_of_reversal_in_closed_form():
    """With positions, reversal's error is that of rounding to cell middles, sqrt(dn/12) delta."""
    for d, n, cells in ((1, 3, 4), (2, 2, 2)):
        made = universal(F.reverse, d=d, n=n, delta=1 / cells, positions=True)
        found = made.certificate
        assert found.d_p.value == pytest.approx(math.sqrt(d * n / 12) / cells, rel=1e-3)
        assert found.d_p.value <= found.bound.value * (1 + 1e-9)
        assert found.grid_error == 0
        assert found.hardmax_difference == 0


@pytest.mark.parametrize(
    ("d", "n", "cells", "positions", "blocks"),
    [
        *((1, 2, 16, False, 292), (1, 3, 8, False, 252), (2, 2, 4, False, 286)),
        *((1, 3, 4, True, 220), (1, 1, 8, False, 28)),
        pytest.param(1, 3, 8, True, 1589, marks=pytest.mark.slow),
    ],
)
def test_certificate(d, n, cells, positions, blocks):
    f = F.running_mean if positions else F.pairwise_products
    made = universal(f, d=d, n=n, delta=1 / cells, positions=positions, lipschitz=2.0)
    found = made.certificate
    assert found.blocks == blocks == cost(d, n, delta=1 / cells, positions=positions).blocks
    assert found.parameters == blocks * (17 * d + 6) + (d * n if positions else 0)
    assert found.stored == sum(p.numel() for p in made.model.parameters())
    assert found.nonzero <= found.stored <= found.parameters
    # The triangle inequality, and each term below its bound (up to rounding).
    assert found.d_p.value <= found.bound.value + 5 * (found.bound.se or 0)
    for term in found.terms:
        assert term.measured.value <= term.bound + 1e-12
    assert found.hardmax_difference == 0
    assert found.contextual
    assert found.grid_error <= 1e-14
    assert found.bits <= 53
    if not positions:
        assert found.equivariance_error.value <= 1e-10
    assert "blocks" in str(found)
    as_json = found.to_dict()
    assert as_json["d_p"]["value"] == found.d_p.value
    assert as_json["contextual"]["holds"]


@pytest.mark.slow
def test_largest_named_case_is_exact_on_its_grid():
    """d = 2, n = 2, delta = 1/8: softmax against the values of f, on every fourth cell."""
    made = universal(F.attention, d=2, n=2, delta=1 / 8)
    assert made.model.depth == 4184
    assert made.cost.parameters == 167_360
    k = torch.arange(64)
    column = torch.stack([k % 8, k // 8], 1) / 8 + 1 / 16
    x = torch.stack([column[:, None].expand(64, 64, 2), column[None].expand(64, 64, 2)], -1)
    x = x.reshape(-1, 2, 2)[::4]
    torch.testing.assert_close(made(x), F.attention(x), rtol=0, atol=2e-15)


@pytest.mark.slow
def test_named_cases_in_full():
    """(1,3,1/16), (2,2,1/8) and with positions (1,3,1/16): certificates of the large networks."""
    for d, n, cells, positions, blocks in (
        *((1, 3, 16, False, 1973), (2, 2, 8, False, 4184)),
        (1, 3, 16, True, 12_390),
    ):
        f = F.sort if positions else F.attention
        found = universal(f, d=d, n=n, delta=1 / cells, positions=positions).certificate
        assert found.blocks == blocks
        assert found.hardmax_difference == 0
        assert found.grid_error <= 2e-15
        assert found.contextual
        if not positions:
            assert found.equivariance_error.value <= 1e-10


def test_modified_network_is_the_softened_one_off_the_ramps():
    """Density of the true class in the modified one: equal wherever no ramp is met."""
    made = universal(F.centred, d=1, n=3, delta=1 / 4)
    x = torch.rand(300, 1, 3, generator=rng())
    torch.testing.assert_close(made(x), made.modified(x), rtol=0, atol=1e-14)


@settings(max_examples=5)
@given(seed=st.integers(0, 1000), cells=st.sampled_from([2, 4]), d=st.integers(1, 2))
def test_softening_error_falls_with_the_ramp(seed, cells, d):
    """Density of the true class in the modified one: errors show on wide ramps and shrink."""
    f = F.smooth(d, seed=seed)
    x = torch.rand(400, d, 2, generator=rng(seed))
    gaps = []
    for ramp in (2.0**-3, 2.0**-7, 2.0**-30):
        made = universal(f, d=d, n=2, delta=1 / min(cells, 4 // d), ramp=ramp)
        gaps.append(float((made(x) - made.modified(x)).abs().mean()))
    assert gaps[0] > gaps[1]
    # On the narrow ramp there may be none of the points: then only rounding is left.
    assert gaps[1] > gaps[2] or gaps[1] < 1e-12
    assert gaps[2] < 1e-12


def test_repeated_columns_filled_in_or_left_out():
    """d = 1, n = 2, delta = 1/16: leaving 1/16 of the cells out costs most of the error."""
    filled = universal(F.mean, d=1, n=2, delta=1 / 16).certificate
    left = universal(F.mean, d=1, n=2, delta=1 / 16, repeated=False).certificate
    assert left.blocks == 292 - 16
    assert left.d_p.value > 5 * filled.d_p.value
    assert filled.d_p.value < 0.031
    assert "not tabulated" in " ".join(left.notes)
    assert left.terms[1].measured.value <= left.terms[1].bound


def test_eps_chooses_delta():
    made = universal(F.attention, d=1, n=2, eps=0.04)
    assert made.delta == 1 / 8
    assert made.certificate.d_p.value <= 0.04
    assert universal(F.reverse, d=1, n=2, eps=0.11, positions=True).delta == 1 / 4


def test_edges_and_outside_of_the_cube():
    x = torch.tensor([[[0.0, 1.0]], [[1.0, 1.0]], [[-3.0, 5.0]], [[0.0, 0.0]]])
    made = universal(F.mean, d=1, n=2, delta=1 / 8)
    inside = x.clamp(1 / 16, 15 / 16)
    torch.testing.assert_close(made(x), F.mean(inside), rtol=0, atol=1e-15)
    ordered = universal(F.reverse, d=1, n=2, delta=1 / 8, positions=True)
    torch.testing.assert_close(ordered(x[:2]), F.reverse(inside[:2]), rtol=0, atol=1e-15)


@pytest.mark.parametrize("d", [1, 2])
def test_zero_outside_as_in_the_paper(d):
    made = universal(F.mean, d=d, n=2, delta=1 / 4, outside="zero")
    x = torch.rand(300, d, 2, generator=rng())
    torch.testing.assert_close(made(x), F.mean((x * 4).floor() / 4 + 1 / 8), rtol=0, atol=1e-14)
    y = x.clone()
    y[:150, 0, 0] = -0.01 - 3 * torch.rand(150, generator=rng())
    y[150:, d - 1, 1] = 1.01 + 3 * torch.rand(150, generator=rng())
    assert made(y).abs().max() == 0


def test_shapes_and_kinds_of_arrays():
    made = universal(
        lambda x: np.sort(x, axis=2)[:, :, ::-1], d=1, n=3, delta=1 / 2, positions=True
    )
    x = np.random.default_rng(0).random((5, 1, 3))
    assert isinstance(made(x), np.ndarray)
    assert made(x[0]).shape == (1, 3)
    np.testing.assert_array_equal(made(x)[0], made(x[0]))
    assert isinstance(made(torch.tensor(x)), torch.Tensor)
    assert made.model.position_table.dtype == torch.float64
    with pytest.raises(al.InputError, match="be of shape"):
        made(np.zeros(3))


def test_hardmax_network():
    made = universal(F.mean, d=1, n=2, delta=1 / 4, softmax=False)
    assert made.model.blocks[5].attention.hard
    assert made.certificate.hardmax_difference == 0


def test_a_construction_is_saved_and_loaded(tmp_path):
    from safetensors.torch import load_file, save_file

    made = universal(F.mean, d=1, n=2, delta=1 / 4)
    save_file(made.model.state_dict(), tmp_path / "w.safetensors")
    again = universal(F.maximum, d=1, n=2, delta=1 / 4)
    again.model.load_state_dict(load_file(tmp_path / "w.safetensors"))
    x = torch.rand(50, 1, 2, generator=rng())
    assert torch.equal(again(x), made(x))


class Drunk:
    def __init__(self):
        self.calls = 0

    def __call__(self, x):
        self.calls += 1
        return x + self.calls


@pytest.mark.parametrize(
    ("f", "message"),
    [
        (F.running_mean, r"commute with permutations .* Pass positions=True"),
        (F.sort, r"commute with permutations"),
        (lambda x: x.sum(2), r"f must give the shape it is given, \(64, 1, 2\)"),
        (lambda x: x / 0, r"f must give finite values everywhere"),
        (lambda x: (x - 2).sqrt(), r"f must give finite values everywhere"),
        (Drunk(), r"f must be a function of its input"),
        (lambda x: x - x.mean(), r"f must treat each input alone"),
        (lambda x: x.nonsense(), r"f must take an array of shape \(b, d, n\); got AttributeError"),
    ],
)
def test_refusals_of_functions(f, message):
    with pytest.raises(al.InputError, match=message):
        universal(f, d=1, n=2, delta=1 / 4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"delta": 0.3}, r"delta must be 1/2, 1/4, 1/8, \.\.\.; got 0\.3\. .* Use 1/4\."),
        ({"delta": 1 / 3}, r"exact in binary\. Use 1/4\."),
        ({"delta": 1.0}, r"delta must be 1/2"),
        ({"delta": -0.25}, r"delta must be 1/2"),
        ({"delta": 1 / 1024}, r"got \d+ bits .* smallest delta that fits is 1/128\."),
        (
            {"eps": 1e-6},
            r"eps must be reachable in float64; got 1e-06\. .* 1/128, gives d_p = 0.00",
        ),
        ({"eps": -1.0}, r"eps must be positive"),
        ({}, r"eps must be positive when there is no delta; got None"),
        ({"delta": 0.25, "eps": 0.1}, r"eps must not be given together with delta"),
        ({"delta": 0.25, "p": 0.5}, r"p must be at least 1"),
        ({"delta": 0.25, "ramp": 0.5}, r"ramp must lie between 0 and 1/4"),
        ({"delta": 0.25, "outside": "far"}, r"outside must be 'clamp' or 'zero'"),
    ],
)
def test_refusals_of_arguments(arguments, message):
    with pytest.raises(al.InputError, match=message):
        universal(F.mean, d=1, n=2, **arguments)


def test_refusals_of_sizes():
    with pytest.raises(al.InputError, match=r"universal\.n must be at least 1"):
        universal(F.mean, d=1, n=0, delta=0.5)
    with pytest.raises(al.InputError, match=r"at least n = 5 different columns.* Use 1/8"):
        universal(F.mean, d=1, n=5, delta=0.25)
    with pytest.raises(al.InputError, match="smallest delta that fits is 1/8"):
        universal(F.mean, d=2, n=2, delta=1 / 16)
    with pytest.raises(al.InputError, match="None fits"):
        universal(F.mean, d=8, n=8, delta=1 / 2)


@pytest.mark.parametrize(
    ("d", "n", "finest"),
    [(1, 2, 128), (1, 3, 32), (1, 4, 16), (1, 6, 8), (2, 2, 8), (2, 3, 4), (3, 2, 4)],
)
def test_limit_of_float64(d, n, finest):
    """2 (n + 1) d m + 6 bits for values up to 2."""
    m = int(math.log2(finest))
    assert cost(d, n, delta=1 / finest).bits == 2 * (n + 1) * d * m + 6
    assert cost(d, n, delta=1 / finest).bits <= 53
    assert cost(d, n, delta=0.5 / finest).bits > 53


def test_cost_is_a_function_of_eps():
    # A linear function's error is sqrt(dn/12) delta; eps = 0.05 at d = 1, n = 2 wants delta 1/16.
    found = cost(1, 2, eps=0.05)
    assert (found.delta, found.blocks, found.parameters) == (1 / 16, 292, 6716)
    made = universal(F.centred, d=1, n=2, delta=found.delta).certificate
    assert made.d_p.value <= 0.05
    # Blocks grow as eps^(-dn): doubling 1/eps multiplies the value layers by 2^(dn) in the end.
    many = [cost(1, 3, eps=eps).layers["values"] for eps in (1e-3, 5e-4, 2.5e-4)]
    assert many[2] / many[1] == pytest.approx(8, rel=0.01)
    with pytest.raises(al.InputError, match="one of eps and delta"):
        cost(1, 2)


# The compact construction


@pytest.mark.parametrize(
    ("d", "n", "cells", "positions"),
    [
        *((1, 2, 16, False), (1, 3, 8, False), (2, 2, 4, False), (1, 3, 5, False)),
        *((1, 3, 8, True), (2, 2, 4, True), (1, 1, 4, False)),
    ],
)
def test_compact_construction(d, n, cells, positions):
    f = F.running_mean if positions else F.attention
    made = compact(f, d=d, n=n, delta=1 / cells, positions=positions)
    found = made.certificate
    assert found.blocks == made.model.depth == 2
    assert found.contextual
    assert found.clashes == 0
    # Codes of up to 10^6 in a sum of thousands of ReLUs lose that many digits of 16.
    assert found.grid_error < 1e-8
    if not positions:
        assert found.equivariance_error.value < 1e-8
    x = torch.rand(300, d, n, generator=rng())
    middle = ((x * cells).floor() + 0.5) / cells
    torch.testing.assert_close(made(x), f(middle), rtol=0, atol=1e-8)


def test_compact_is_smaller_and_no_worse():
    for d, n, cells in ((1, 2, 16), (1, 3, 16), (2, 2, 8)):
        size = cost(d, n, delta=1 / cells)
        made = compact(F.attention, d=d, n=n, delta=1 / cells)
        assert size.blocks >= 100 * made.model.depth
        assert sum(int((w != 0).sum()) for w in made.model.parameters()) < size.parameters
    thin = universal(F.attention, d=1, n=3, delta=1 / 8).certificate
    wide = compact(F.attention, d=1, n=3, delta=1 / 8).certificate
    # Codes of aab and abb differ, unlike in the narrow construction.
    assert wide.d_p.value < 0.6 * thin.d_p.value
    assert thin.clashes > 0


def test_compact_refusals():
    with pytest.raises(al.InputError, match=r"compact\.delta must be 1/2, 1/3, 1/4"):
        compact(F.mean, d=1, n=2, delta=0.3)
    with pytest.raises(al.InputError, match=r"at most 131,072 codes; got"):
        compact(F.mean, d=2, n=4, delta=1 / 16)
    with pytest.raises(al.InputError, match="commute"):
        compact(F.sort, d=1, n=2, delta=1 / 4)
    with pytest.raises(al.InputError, match=r"eps must be reachable with 131,072 codes.* 1/256"):
        compact(F.mean, d=1, n=2, eps=1e-6)
    assert compact(F.mean, d=1, n=2, eps=0.06).delta == 1 / 8


def test_a_certificate_of_many_blocks_takes_fewer_points(monkeypatch):
    made = universal(F.mean, 1, 2, 1 / 4)
    whole = made.certificate
    attention = [block.attention for block in made.model.blocks if block.attention is not None]
    assert attention
    assert not any(part.hard for part in attention)
    monkeypatch.setattr(universal_construction, "MOST_WORK", 2 * made.model.depth * 256)
    few = universal(F.mean, 1, 2, 1 / 4).certificate
    assert (whole.d_p.n, few.d_p.n) == (4096, 256)
    assert abs(few.d_p.value - whole.d_p.value) < 5 * few.d_p.se
    assert "errors are those at 256 points, since the network has many blocks" in few.notes
    assert few.hardmax_difference == whole.hardmax_difference
    monkeypatch.setattr(universal_construction, "MOST_WORK", 2 * made.model.depth * 8)
    least = universal(F.mean, 1, 2, 1 / 4).certificate
    assert least.cells == 8
    assert "the grid was checked on 8 of 10 sequences" in least.notes
