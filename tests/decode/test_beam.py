import itertools

import pytest
import torch
from scipy import stats

from allometry import InputError, decode
from allometry.models import Transformer

V = 7


@pytest.fixture(scope="module")
def model():
    rng = torch.Generator().manual_seed(0)
    made = Transformer(vocabulary=V, width=16, depth=2, heads=2, context=24, rng=rng)
    with torch.no_grad():
        for p in made.parameters():  # far from uniform, so that choices matter
            p.mul_(3.0)
    return made.eval()


def recomputed(model, prompt, tokens):
    whole = torch.cat([torch.tensor(prompt), tokens])
    log_p = model(whole[None, :-1])[0].log_softmax(-1)
    return log_p.gather(1, whole[1:, None])[len(prompt) - 1 :, 0].sum().item()


def everything(model, prompt, n, end=None):
    """All sequences of length n, or shorter where they end, with their log-probabilities."""
    found = {}
    for tokens in itertools.product(range(V), repeat=n):
        cut = tokens[: tokens.index(end) + 1] if end in tokens else tokens
        if cut not in found:
            found[cut] = recomputed(model, prompt, torch.tensor(cut))
    return found


def test_a_beam_as_wide_as_the_tree_is_exhaustive(model):
    found = decode.beam(model, [1, 2], n=3, width=V**2)
    table = everything(model, [1, 2], 3)
    best = sorted(table, key=table.get, reverse=True)[: V**2]
    assert tuple(found[0].tokens.tolist()) == best[0]
    assert found[0].log_prob == pytest.approx(table[best[0]], abs=1e-9)


@pytest.mark.parametrize("normalise", ["none", "length", "gnmt"])
def test_an_end_token_and_every_normalisation_against_enumeration(model, normalise):
    alpha = 0.7
    table = everything(model, [3], 3, end=0)

    def score(tokens):
        length = len(tokens)
        divisor = {"none": 1, "length": length**alpha, "gnmt": ((5 + length) / 6) ** alpha}
        return table[tokens] / divisor[normalise]

    best = sorted(table, key=score, reverse=True)[:5]
    found = decode.beam(model, [3], n=3, width=200, end=0, normalise=normalise, alpha=alpha)
    assert [tuple(h.tokens.tolist()) for h in found[:5]] == best
    assert [h.score for h in found[:5]] == pytest.approx([score(b) for b in best])


PROMPTS = [[1, 2, 3, 4], [5], [0, 6]]


@pytest.mark.parametrize("n", [5, 40])
def test_greedy_and_beam_are_the_same_with_and_without_cache_in_batches(model, n):
    # 40 goes past the context of 24, where the window slides.
    def bare(tokens):
        return model(tokens)

    bare.context = model.context
    for prompts in (PROMPTS, PROMPTS[0]):
        cached = decode.sample(model, prompts, decode.greedy, n=n)
        assert torch.equal(cached, decode.sample(bare, prompts, decode.greedy, n=n))
    batch = decode.beam(model, PROMPTS, n=n, width=3)
    for prompt, found in zip(PROMPTS, batch, strict=True):
        alone = decode.beam(bare, prompt, n=n, width=3)
        for one, two in zip(found, alone, strict=True):
            assert torch.equal(one.tokens, two.tokens)
            assert one.log_prob == pytest.approx(two.log_prob, abs=1e-6)
            if n == 5:
                assert one.log_prob == pytest.approx(
                    recomputed(model, prompt, one.tokens), abs=1e-6
                )


def test_width_one_is_greedy(model):
    found = decode.beam(model, [2, 2], n=8, width=1)
    assert torch.equal(found[0].tokens, decode.sample(model, [2, 2], decode.greedy, n=8))


def hugging_face():
    import transformers

    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=31,
        n_positions=32,
        n_embd=16,
        n_layer=2,
        n_head=2,
        initializer_range=0.6,
        bos_token_id=None,
        eos_token_id=None,
    )
    return transformers.GPT2LMHeadModel(config).eval()


@pytest.mark.filterwarnings("ignore")
def test_beam_finds_what_hugging_face_s_does():
    theirs = hugging_face()
    prompt = torch.tensor([[3, 1, 4], [1, 5, 9]])
    want = theirs.generate(
        prompt,
        num_beams=4,
        do_sample=False,
        max_new_tokens=10,
        num_return_sequences=4,
        length_penalty=0.0,
        return_dict_in_generate=True,
        output_scores=True,
        pad_token_id=0,
        early_stopping=False,
    )
    found = decode.beam(decode.HuggingFace(theirs), prompt, n=10, width=4)
    ours = torch.stack([h.tokens for row in found for h in row])
    assert torch.equal(ours, want.sequences[:, 3:])
    scores = torch.tensor([h.score for row in found for h in row])
    torch.testing.assert_close(scores, want.sequences_scores.to(scores.dtype), atol=1e-4, rtol=0)


@pytest.mark.filterwarnings("ignore")
def test_hugging_face_models_with_and_without_cache():
    theirs = decode.HuggingFace(hugging_face())
    prompts = [[3, 1, 4, 1], [5], [9, 2]]
    cached = decode.sample(theirs, prompts, decode.greedy, n=40)  # past their 32 positions

    def bare(tokens):
        return theirs(tokens)

    assert torch.equal(cached, decode.sample(bare, prompts, decode.greedy, n=40, context=32))


def test_groups_of_a_diverse_beam_differ(model):
    close = decode.beam(model, [1], n=6, width=4, groups=4, diversity=0.0)
    apart = decode.beam(model, [1], n=6, width=4, groups=4, diversity=50.0)
    assert len({tuple(h.tokens.tolist()) for h in close}) == 1
    first = [h.tokens[0].item() for h in apart]
    assert len(set(first)) == 4
    for h in apart:
        assert h.log_prob == pytest.approx(recomputed(model, [1], h.tokens), abs=1e-6)


def test_a_stochastic_beam_samples_without_replacement():
    # Two tokens of three symbols, the second depending on the first.
    p1 = torch.tensor([0.6, 0.3, 0.1])
    p2 = torch.tensor([[0.5, 0.4, 0.1], [0.2, 0.2, 0.6], [0.1, 0.1, 0.8]])

    def chain(tokens):
        first = p1.log().expand(len(tokens), -1)
        return first if tokens.shape[1] == 1 else p2[tokens[:, -1]].log()

    names = list(itertools.product(range(3), repeat=2))
    p = torch.stack([p1[i] * p2[i, j] for i, j in names])
    firsts = torch.zeros(len(names))
    pair = 0.0
    top = names[int(p.argmax())]
    trials = 1000
    for seed in range(trials):
        found = decode.stochastic_beam(chain, [0], n=2, width=3, rng=seed)
        keys = [tuple(h.tokens.tolist()) for h in found]
        assert len(set(keys)) == 3
        firsts[names.index(keys[0])] += 1
        pair += top in keys[:2]
    # The first is a sample of the model itself.
    assert stats.chisquare(firsts, trials * p).statistic < stats.chi2.isf(1e-6, len(p) - 1)
    # The second is one of the others: P(top among two) = p + sum_x p_x p / (1 - p_x).
    q = p[names.index(top)]
    others = torch.cat([p[: names.index(top)], p[names.index(top) + 1 :]])
    exact = (q + (others * q / (1 - others)).sum()).item()
    assert abs(pair / trials - exact) < 5 * (exact * (1 - exact) / trials) ** 0.5


def test_a_stochastic_beam_reports_log_probabilities(model):
    found = decode.stochastic_beam(model, [4, 4], n=5, width=6, rng=0)
    for h in found:
        assert h.log_prob == pytest.approx(recomputed(model, [4, 4], h.tokens), abs=1e-6)
    assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)
    whole = decode.stochastic_beam(model, [4], n=1, width=50, rng=0)
    assert len(whole) == V


def test_invalid_input_is_refused(model):
    with pytest.raises(InputError, match="groups must divide 4"):
        decode.beam(model, [1], n=2, width=4, groups=3)
    with pytest.raises(InputError, match="none, length or gnmt"):
        decode.beam(model, [1], n=2, normalise="words")


def test_a_width_beyond_memory_is_refused():
    """It ended in torch's own error about long integers."""
    with pytest.raises(InputError, match="width must be from 1 to 65,536"):
        decode.beam(lambda ids: torch.zeros(len(ids), 3), [0], n=2, width=10**30)
