import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from allometry import InputError, decode

P = torch.tensor([0.1, 0.2, 0.3, 0.4])

VECTORS = [
    (decode.top_p(0.7), P, [0, 0, 0.4286, 0.5714]),
    (decode.top_p(0.0), P, [0, 0, 0, 1]),
    (decode.top_p(1.0), P, [0.1, 0.2, 0.3, 0.4]),
    (decode.top_k(9), P, [0.1, 0.2, 0.3, 0.4]),
    (decode.top_k(2), torch.full((4,), 0.25), [0.5, 0.5, 0, 0]),
    (decode.min_p(0.26), P, [0, 2 / 9, 3 / 9, 4 / 9]),
    (decode.min_p(0.51), P, [0, 0, 3 / 7, 4 / 7]),
    (decode.min_p(0.76), P, [0, 0, 0, 1]),
    (decode.typical(0.5), torch.tensor([0.4, 0.2, 0.2, 0.2]), [0, 1 / 3, 1 / 3, 1 / 3]),
    (decode.eta(0.05), torch.tensor([0.9, 0.06, 0.03, 0.01]), [0.9375, 0.0625, 0, 0]),
    (decode.epsilon(0.25), P, [0, 0, 3 / 7, 4 / 7]),
    (decode.epsilon(0.99), P, [0, 0, 0, 1]),
    (decode.top_a(1.0), P, [0, 0.2 / 0.9, 0.3 / 0.9, 0.4 / 0.9]),
    (decode.temperature(0), P, [0, 0, 0, 1]),
    (decode.temperature(0.5), P, [1 / 30, 4 / 30, 9 / 30, 16 / 30]),
    (decode.greedy, torch.tensor([0.3, 0.35, 0.35]), [0, 1, 0]),
    (decode.plain, P, [0.1, 0.2, 0.3, 0.4]),
]
EVERY = [strategy for strategy, _, _ in VECTORS]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("strategy", "p", "want"), VECTORS)
def test_vectors(strategy, p, want, dtype):
    got = strategy(p.to(dtype).log()).softmax(-1)
    assert got.tolist() == pytest.approx(want, abs=5e-5)
    assert got.dtype == dtype


logits = st.lists(
    st.one_of(st.floats(-40, 40), st.just(-float("inf"))), min_size=1, max_size=8
).filter(lambda x: max(x) > -1e9)


@given(rows=logits, which=st.sampled_from(range(len(EVERY))))
def test_the_likeliest_stays_and_nothing_is_nan(rows, which):
    x = torch.tensor(rows)
    if which in (8,):  # typical sampling alone may drop the likeliest
        return
    p = EVERY[which](x).softmax(-1)
    assert not p.isnan().any()
    assert p[x.argmax()] > 0
    assert (p[x == -torch.inf] == 0).all()


@given(rows=logits, which=st.sampled_from(range(len(EVERY))))
def test_a_batch_is_its_rows(rows, which):
    x = torch.tensor(rows)
    both = EVERY[which](torch.stack([x, x.flip(0)]))
    assert torch.equal(both[0], EVERY[which](x))


@given(st.lists(st.floats(-9, 9), min_size=2, max_size=9), st.integers(1, 9))
def test_top_k_keeps_exactly_k(rows, k):
    x = torch.tensor([round(r) for r in rows], dtype=torch.float64)  # many ties
    assert decode.top_k(k)(x).isfinite().sum() == min(k, len(x))


@given(st.lists(st.floats(0.01, 1), min_size=2, max_size=9), st.floats(0, 0.999))
def test_top_p_is_the_smallest_set(weights, p):
    q = torch.tensor(weights) / sum(weights)
    kept = decode.top_p(p)(q.log()).isfinite()
    assert q[kept].sum() >= p - 1e-9
    assert q[kept].sum() - q[kept].min() < p + 1e-9 or kept.sum() == 1
    assert kept.all() or q[kept].min() >= q[~kept].max()


def test_order_matters_and_is_left_to_right():
    cold_then_cut = decode.chain([decode.temperature(0.1), decode.min_p(0.5)])
    cut_then_cold = decode.chain([decode.min_p(0.5), decode.temperature(0.1)])
    assert cold_then_cut(P.log()).isfinite().sum() == 1
    assert cut_then_cold(P.log()).isfinite().sum() == 3


def test_extreme_temperatures_stay_finite():
    x = torch.tensor([1e30, 0.0, -1e30], dtype=torch.float32)
    assert decode.temperature(1e-30)(x).softmax(-1).tolist() == [1, 0, 0]
    assert decode.temperature(1e6)(P.log()).softmax(-1).tolist() == pytest.approx(
        [0.25] * 4, abs=1e-5
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda: decode.top_p(1.5),
        lambda: decode.top_k(0),
        lambda: decode.temperature(-1),
        lambda: decode.min_p(-0.1),
    ],
)
def test_invalid_input_is_refused(make):
    with pytest.raises(InputError, match="must"):
        make()
