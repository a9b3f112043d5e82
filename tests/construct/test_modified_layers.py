"""Stage by stage: what the lemmas of the proof say, on the layers alone and after softening."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from allometry.construct import proof_stages as stage
from allometry.construct.modified_layers import (
    Phi,
    RankOneFeedForward,
    Shift,
    apply,
    blocks,
    soften,
)
from allometry.construct.sequence_functions import grid_columns, grid_sequences, orders, tabulate
from allometry.measure import is_contextual_mapping


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def relus(phi, t):
    sign, knot, weight = (torch.tensor(v) for v in phi.relus())
    return (weight * torch.relu(sign * (t[:, None] - knot))).sum(1)


@given(
    a=st.floats(-2, 0),
    width=st.floats(0.5, 2),
    slope=st.floats(-2, 2),
    height=st.floats(-2, 2),
    outside=st.booleans(),
)
def test_four_relus_equal_phi_but_on_its_ramps(a, width, slope, height, outside):
    ramp, b = 2.0**-10, a + width
    piece = (slope, height)
    phi = (
        Phi(a, b, left=piece, right=(height, slope), ramp=ramp)
        if outside
        else Phi(a, b, middle=piece, ramp=ramp)
    )
    t = torch.linspace(-5, 5, 4001)
    far = ((t - a).abs() > 2 * ramp) & ((t - b).abs() > 2 * ramp)
    # Slopes of height/ramp cancel: 2^10 times a rounding of numbers of order 10.
    torch.testing.assert_close(relus(phi, t)[far], phi(t)[far], rtol=0, atol=1e-10)


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("delta", [1 / 4, 1 / 16])
def test_quantise_rounds_down_exactly(d, delta):
    layers = stage.quantise(d, delta)
    assert len(layers) == d / delta
    x = torch.rand(500, d, 3, generator=rng())
    expected = (x / delta).floor() * delta
    assert torch.equal(apply(layers, x), expected)
    with torch.no_grad():
        # Random points meet ramps of 2^-20 of a cell with probability 0.003 here; these do not.
        assert torch.equal(soften(layers)(x), expected)


def test_quantise_with_positions_takes_both_ends():
    n, delta = 3, 1 / 8
    x = torch.tensor([[[0.0, 0.5, 1.0]], [[1.0, 1.0, 0.0]], [[0.3, 1.2, 0.0]]])
    shifted = x + stage.encoding(1, n)
    expected = torch.tensor([[[0, 0.5, 0.875]], [[0.875, 0.875, 0]], [[0.25, 0.875, 0]]])
    layers = stage.quantise(1, delta, n)
    assert len(layers) == n / delta
    assert torch.equal(apply(layers, shifted), expected + stage.encoding(1, n))
    with torch.no_grad():
        assert torch.equal(
            soften(layers, positions=stage.encoding(1, n))(x), expected + stage.encoding(1, n)
        )


def test_clamp_and_banish():
    x = torch.tensor([[[-3.0, -1e-9, 0.0, 0.4, 1.0, 1.5, 7.0]]])
    layers = stage.clamp(1, 0.0, 1.0)
    assert torch.equal(apply(layers, x), x.clamp(0, 1))
    with torch.no_grad():
        assert torch.equal(soften(layers)(x), x.clamp(0, 1))
    away = stage.banish(1, 0.0, 1.0 + 2**-10, -64.0, 2.0**-20)
    expected = torch.tensor([[[-64, -64, 0, 0.4, 1, -64, -64]]])
    assert torch.equal(apply(away, x), expected)
    x[0, 0, 1] = -1e-3
    with torch.no_grad():
        torch.testing.assert_close(soften(away)(x), expected, rtol=0, atol=1e-6)


CASES = [(1, 2, 4), (1, 2, 16), (1, 3, 8), (1, 4, 4), (2, 2, 4), (3, 2, 2)]


@pytest.mark.parametrize(("d", "n", "cells"), CASES)
def test_contextual_mapping_on_the_whole_grid(d, n, cells):
    """Lemma 6: codes name column and sequence; sequences with repeated columns get others."""
    layers = stage.contextual(d, 1 / cells, n)
    assert len(layers) == cells**d + 1
    every = grid_sequences(d, n, cells, positions=False)
    x = grid_columns(d, cells)[every].mT
    u = stage.reader(d, 1 / cells)
    ids = torch.einsum("d,bdn->bn", u, apply(layers, x))
    distinct = (every.diff(dim=1) > 0).all(1)
    found = is_contextual_mapping(ids[distinct], x[distinct])
    assert found
    assert found.sequences == math.comb(cells**d, n)
    assert found.codes == n * found.sequences
    low, high = found.interval
    repeated = ids[~distinct]
    assert ((repeated < low) | (repeated > high)).all()
    assert low > 0


@pytest.mark.parametrize(("d", "n", "cells"), CASES)
def test_softmax_is_hardmax_bit_by_bit_on_the_grid(d, n, cells):
    layers = stage.contextual(d, 1 / cells, n)
    x = grid_columns(d, cells)[grid_sequences(d, n, cells, positions=False)].mT
    expected = apply(layers, x)
    with torch.no_grad():
        assert torch.equal(soften(layers, softmax=False)(x), expected)
        assert torch.equal(soften(layers)(x), expected)


def test_softmax_at_a_low_temperature_only_comes_near():
    layers = stage.contextual(1, 1 / 4, 2)
    x = grid_columns(1, 4)[grid_sequences(1, 2, 4, positions=False)].mT
    expected = apply(layers, x)
    with torch.no_grad():
        errors = [
            float((soften(layers, temperature=t)(x) - expected).abs().max()) for t in (8, 32, 128)
        ]
    assert errors[0] > errors[1] > errors[2]
    assert errors[0] > 1


@pytest.mark.parametrize(("d", "n", "cells"), [(1, 2, 8), (1, 3, 4), (2, 2, 4)])
def test_with_positions_every_order_has_its_own_codes(d, n, cells):
    layers = stage.contextual(d, 1 / cells, n, positions=True)
    assert len(layers) == n * cells**d + 1
    x = grid_columns(d, cells)[grid_sequences(d, n, cells, positions=True)].mT
    x = x + stage.encoding(d, n)
    codes = apply(layers, x)
    found = is_contextual_mapping(codes[:, 0], x)
    assert found
    assert found.codes == n * cells ** (d * n)
    with torch.no_grad():
        assert torch.equal(soften(layers)(x), codes)


def test_selective_shift_by_hand():
    u = torch.ones(1)
    x = torch.tensor([[[0.25, 0.75, 0.5]]])
    shift = Shift(u, 0.375, 0.625, 4.0, gap=0.25)
    assert shift(x).tolist() == [[[0.25, 0.75, 0.5 + 4 * (0.75 - 0.25)]]]
    assert Shift(u, -0.125, None, 8.0, gap=0.25)(x).tolist() == [[[6.25, 6.75, 6.5]]]


def test_rescale_keeps_every_bit():
    layers = stage.rescale(2, 2.0**33, 2.0**-3, base=4.0)
    codes = torch.randint(2**36, (50, 2, 3), generator=rng()) / 8
    out = apply(layers, codes)
    assert torch.equal(out[:, 0], codes[:, 0] / 2**33 + 4)
    assert torch.equal(out[:, 1], codes[:, 1])
    with torch.no_grad():
        assert torch.equal(soften(layers)(codes), out)


def test_values_replace_their_columns_and_leave_others():
    codes = torch.tensor([4.25, 4.5, 4.75])
    columns = torch.stack([codes, torch.tensor([0.0, 1.0, 2.0])], 1)
    targets = torch.tensor([[0.1, 0.2], [-0.3, 0.7], [1.9, 0.0]])
    layers = stage.values(codes, columns, targets, gap=0.25)
    x = torch.cat([columns, torch.tensor([[0.5, 3.0], [4.625, 1.0]])]).T[None]
    expected = torch.cat([targets, torch.tensor([[0.5, 3.0], [4.625, 1.0]])]).T[None]
    torch.testing.assert_close(apply(layers, x), expected, rtol=0, atol=1e-15)
    with torch.no_grad():
        # The stranger 4.625 passes above two windows, whose ReLUs cancel to a few digits of 16.
        torch.testing.assert_close(soften(layers)(x), expected, rtol=0, atol=2e-14)


def test_blocks_hold_attention_before_feed_forward():
    u, phi = torch.ones(1), Phi(0.0, 1.0, middle=(0.0, 1.0), ramp=0.1)
    a, f = Shift(u, 0.0, None, 1.0, 1.0), RankOneFeedForward(u, 0.0, phi, u)
    packed = blocks([f, a, a, f, f])
    assert [(x is not None, y is not None) for x, y in packed] == [
        *((False, True), (True, False)),
        *((True, True), (False, True)),
    ]


def test_tables_take_the_mean_of_those_that_share_a_code():
    sequences = grid_sequences(1, 3, 2, positions=False)
    assert sequences.tolist() == [[0, 0, 0], [0, 0, 1], [0, 1, 1], [1, 1, 1]]
    assert orders(sequences).tolist() == [1, 3, 3, 1]
    codes = torch.tensor([[0.0, 0, 0], [1, 1, 2], [1, 2, 2], [3, 3, 3]])
    targets = torch.tensor([[[0.0, 0, 0]], [[6, 6, 0]], [[3, 1, 1]], [[9, 9, 9]]])
    table = tabulate(codes, targets, targets, orders(sequences))
    assert table.codes.tolist() == [0, 1, 2, 3]
    # Code 1 stands for two columns of aab (6) and one of abb (3), three orders each.
    assert table.targets[:, 0].tolist() == pytest.approx([0, 5, 2 / 3, 9])
    assert table.clashes == 2
