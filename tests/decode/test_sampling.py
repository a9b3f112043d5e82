import pytest
import torch
from scipy import stats

from allometry import InputError, decode
from allometry.models import KneserNey

P = torch.tensor([0.1, 0.2, 0.3, 0.4])


def fixed(p):
    return lambda tokens: p.log().expand(len(tokens), -1)


def test_plain_sampling_is_the_distribution():
    drawn = decode.sample(fixed(P), torch.zeros(20_000, 1, dtype=torch.int64), n=1, rng=0)
    seen = torch.bincount(drawn[:, 0], minlength=4)
    assert stats.chisquare(seen, 20_000 * P).statistic < stats.chi2.isf(1e-6, 3)


def test_plain_sampling_of_128_near_flat_tokens_shows_all():
    logits = 0.01 * torch.arange(128) / 128
    drawn = decode.sample(lambda t: logits.expand(len(t), -1), [[0]] * 40, n=100, rng=0)
    # A given token is missing with probability exp(-31).
    assert len(drawn.unique()) == 128


def test_ruled_out_tokens_are_never_drawn():
    p = torch.tensor([0.0, 0.5, 0.0, 0.5, 0.0])
    drawn = decode.sample(fixed(p), [[0]] * 100, n=20, rng=1)
    assert set(drawn.unique().tolist()) == {1, 3}


def test_the_same_seed_gives_the_same_tokens_and_shapes_follow_the_prompt():
    one = decode.sample(fixed(P), [0, 1], n=20, rng=5)
    two = decode.sample(fixed(P), torch.tensor([0, 1]), n=20, rng=torch.Generator().manual_seed(5))
    assert torch.equal(one, two)
    assert one.shape == (20,)
    assert decode.sample(fixed(P), [[0, 1], [1, 1]], n=3).shape == (2, 3)
    assert decode.sample(fixed(P), [[0, 1], [1]], n=0).shape == (2, 0)


class Counting(torch.nn.Module):
    """Next logits from the sum of tokens read: its memory is that sum."""

    V = 5

    class Memory:
        def __init__(self):
            self.sum, self.reads = None, 0

        def select(self, rows):
            self.sum = self.sum[rows]

    def new_cache(self):
        self.last = self.Memory()
        return self.last

    def forward(self, tokens, *, cache=None, padding=None):
        tokens = tokens if padding is None else tokens.masked_fill(padding, 0)
        running = tokens.cumsum(1)
        if cache is not None:
            running = running + (0 if cache.sum is None else cache.sum[:, None])
            cache.sum, cache.reads = running[:, -1], cache.reads + tokens.shape[1]
        return 3 * torch.nn.functional.one_hot((3 * running + 1) % self.V, self.V).double()


@pytest.mark.parametrize("strategy", [decode.greedy, decode.plain])
def test_a_cache_changes_nothing_but_the_reading(strategy):
    model = Counting()
    prompts = [[1, 2, 3], [4], [0, 0]]
    cached = decode.sample(model, prompts, strategy, n=9, rng=3)
    plain = decode.sample(lambda tokens: model(tokens), prompts, strategy, n=9, rng=3)
    assert torch.equal(cached, plain)
    assert model.last.reads == 3 + 8


def test_the_window_slides():
    longest = []

    def spy(tokens):
        longest.append(tokens.shape[1])
        return P.log().expand(len(tokens), -1)

    decode.sample(spy, [0] * 9, n=5, context=4)
    assert longest == [4] * 5


def test_samples_of_an_ngram_model_have_its_distribution():
    text = torch.tensor([0, 1, 2] * 30)
    model = KneserNey(3, 3).fit(text)
    assert decode.sample(model, [0, 1], decode.greedy, n=6).tolist() == [2, 0, 1, 2, 0, 1]
    assert torch.equal(
        decode.sample(model, [0, 1], n=20, rng=1), decode.sample(model.logits, [0, 1], n=20, rng=1)
    )


@pytest.mark.parametrize(
    ("logits", "message"),
    [
        (torch.tensor([float("nan"), 1.0]), "got NaN"),
        (torch.tensor([-torch.inf, -torch.inf]), "-inf at every token"),
        (torch.tensor([torch.inf, 0.0]), r"\+inf"),
    ],
)
def test_impossible_logits_are_refused(logits, message):
    with pytest.raises(InputError, match=message):
        decode.sample(lambda t: logits.expand(len(t), -1), [0], n=1)


def test_stop_sequences_end_a_sequence_and_are_kept():
    def count(tokens):  # always the next number modulo 6
        return 50.0 * torch.nn.functional.one_hot((tokens[:, -1] + 1) % 6, 6).double()

    assert decode.sample(count, [0], n=9, stop=[[2, 3]]).tolist() == [1, 2, 3]
    batch = decode.sample(count, [[0], [2]], n=9, stop=[[2, 3], [5]])
    assert batch.tolist() == [[1, 2, 3], [3, 4, 5]]
    batch = decode.sample(count, [[0], [4]], n=9, stop=[[2, 3], [5]])
    assert batch.tolist() == [[1, 2, 3], [5, -1, -1]]
    steps = list(decode.stream(count, [[0], [4]], n=9, stop=[[2, 3], [5]]))
    assert [s.tokens.tolist() for s in steps] == [[1, 5], [2, -1], [3, -1]]
    assert steps[1].surprise[1] == 0


def test_surprise_is_the_model_s_own():
    step = next(iter(decode.stream(fixed(P), [0], decode.greedy, n=1)))
    assert step.surprise.item() == pytest.approx(-torch.log(P[3]).item())


def test_penalties_by_hand():
    logits = P.log()[None] + 7.0  # a shift changes nothing
    state = decode.repetition(2.0).start([torch.tensor([3, 3, 1])], 4)
    assert state.tolist() == [[0, 1, 0, 2]]
    out = decode.repetition(2.0).apply(logits, state)
    assert out[0].tolist() == pytest.approx((P * torch.tensor([1, 0.2, 1, 0.4])).log().tolist())
    out = decode.frequency(0.5, presence=1.0).apply(logits, state)
    assert out[0].tolist() == pytest.approx((P.log() - torch.tensor([0, 1.5, 0, 2.0])).tolist())
    after = decode.repetition(2.0).advance(state, logits, torch.tensor([0]))
    assert after.tolist() == [[1, 1, 0, 2]]
    none = torch.tensor([[-torch.inf, 0.0, 0.0, 0.0]])
    assert not decode.Penalty(2.0, 0.5, 0.5).apply(none, after).isnan().any()


def test_a_frequency_penalty_spreads_the_tokens():
    drawn = decode.sample(fixed(P), [0], [decode.frequency(100.0), decode.greedy], n=8)
    # The prompt holds a 0; each token is used up in turn.
    assert drawn.tolist() == [3, 2, 1, 3, 2, 1, 0, 3]


def test_best_of_many():
    best, score = decode.best_of(fixed(P), [0], n=3, of=500, rng=0)
    assert best.tolist() == [3, 3, 3]
    assert score == pytest.approx(torch.log(P[3]).item())
    best, score = decode.best_of(
        fixed(P), [0], n=3, of=500, rng=0, score=lambda t: -float(t.sum())
    )
    assert score == -best.sum() > -3
