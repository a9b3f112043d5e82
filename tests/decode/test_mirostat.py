import math

import pytest
import torch

from allometry import InputError, decode


def zipf(V, s=1.0):
    logits = -s * torch.arange(1, V + 1, dtype=torch.float64).log()
    return lambda tokens: logits.expand(len(tokens), -1)


def run(source, strategy, steps, batch=1):
    """Surprises in bits (steps, batch) and the edges before and after."""
    sampler = decode.Sampler(source, [[0]] * batch, strategy, rng=0)
    out = torch.stack([sampler.step().surprise for _ in range(steps)]) / math.log(2)
    return out, sampler.state[0]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("tau", [3, 4, 5])
def test_surprise_is_steered_to_tau_and_the_account_balances(tau, version):
    eta, T = 0.1, 400
    seen, mu = run(zipf(1000), decode.mirostat(tau, eta, version), T, batch=20)
    account = tau + (2 * tau - mu) / (eta * T)
    assert torch.allclose(seen.mean(0), account, atol=1e-6, rtol=0)
    # From the account: the edge settles, so 20 x 400 steps are within 0.05 + what the start cost.
    settled = seen[100:].mean().item()
    assert settled == pytest.approx(tau, abs=0.05)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("tau", [0.001, 40.0])
def test_an_unreachable_tau_stays_finite(version, tau):
    # After 10^5 steps the edge has gone eta (tau - S) a step: put it there at once.
    strategy = decode.mirostat(tau, version=version)
    logits = zipf(1000)(torch.zeros(1, 1))
    for mu in (2 * tau + 1e5 * 0.1 * 40, 2 * tau - 1e5 * 0.1 * 40):
        state = torch.tensor([mu])
        left = strategy.apply(logits, state)
        assert torch.isfinite(left.softmax(-1)).all()
        assert torch.isfinite(strategy.advance(state, logits, torch.tensor([999]))).all()
        assert torch.isfinite(left).sum() == (1000 if mu > 0 else 1)
    seen, mu = run(zipf(1000), strategy, 200)
    assert torch.isfinite(seen).all()
    assert torch.isfinite(mu).all()


@pytest.mark.slow
@pytest.mark.parametrize("version", [1, 2])
def test_a_hundred_thousand_steps_at_an_unreachable_tau(version):
    seen, mu = run(zipf(1000), decode.mirostat(40.0, version=version), 100_000)
    assert torch.isfinite(seen).all()
    assert torch.isfinite(mu).all()


def test_version_one_estimates_the_exponent_of_a_zipf_distribution():
    # For s = 1.2 the k that has its edge at mu bits follows in closed form.
    s, V, mu = 1.2, 1000, 5.0
    e = s - 1
    want = (e * 2**mu / (1 - V**-e)) ** (1 / s)
    got = decode.Mirostat(3, version=1).edge(zipf(V, s)(torch.zeros(1, 1)), torch.tensor([mu]))
    assert got.item() == round(want)


def test_the_edge_lives_on_between_calls():
    once = decode.Sampler(zipf(50), [0], decode.mirostat(3.0), rng=4)
    tokens = [once.step().tokens for _ in range(6)]
    again = decode.Sampler(zipf(50), [0], decode.mirostat(3.0), rng=4)
    for _ in range(3):
        again.step()
    middle = again.state[0].clone()
    for _ in range(3):
        again.step()
    assert torch.equal(torch.stack(tokens, 1), again.tokens())
    assert not torch.equal(middle, again.state[0])


def test_surprise_is_that_of_the_whole_distribution():
    # tau so low that only the likeliest token is left, whose renormalised surprisal is 0.
    seen, _ = run(zipf(1000), decode.mirostat(0.01), 5)
    p = zipf(1000)(torch.zeros(1, 1)).softmax(-1)[0, 0]
    assert seen[-1].item() == pytest.approx(-math.log2(p), rel=1e-9)


def test_a_chain_that_remembers_must_be_started():
    with pytest.raises(InputError, match="Mirostat, which has a state"):
        decode.chain([decode.mirostat(3.0)])(torch.zeros(4))
    with pytest.raises(InputError, match="tau must be positive"):
        decode.mirostat(0)
