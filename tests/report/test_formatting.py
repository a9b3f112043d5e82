import math
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allometry import Estimate
from allometry.report import formatting as fmt
from allometry.report.prose import doubts, of_family

UNITS = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


@pytest.mark.parametrize(
    ("write", "x", "text"),
    [
        (fmt.count, 0, "0"),
        (fmt.count, 12, "12"),
        (fmt.count, 840, "840"),
        (fmt.count, 999.6, "1K"),
        (fmt.count, 1_234_567, "1.23M"),
        (fmt.count, 999_999, "1M"),
        (fmt.count, 7e9, "7B"),
        (fmt.count, 2.5e15, "2.5×10¹⁵"),
        (fmt.count, math.inf, "beyond reach"),
        (fmt.count, math.nan, "unknown"),
        (fmt.flops, 3.4e12, "3.4 TFLOP"),
        (fmt.flops, 999.9e9, "1 TFLOP"),
        (fmt.flops, 12.0, "12 FLOP"),
        (fmt.flops, 1e26, "10²⁶ FLOP"),
        (fmt.duration, 0.4, "0.4 s"),
        (fmt.duration, 59.7, "1 min"),
        (fmt.duration, 200, "3 min 20 s"),
        (fmt.duration, 7500, "2 h 5 min"),
        (fmt.duration, 3 * 86400 + 4 * 3600, "3 d 4 h"),
        (fmt.loss, 1.5172, "1.517"),
        (fmt.loss, 0.00123, "0.00123"),
        (fmt.percent, 0.0123, "1.2 %"),
        (fmt.percent, 0.112, "11 %"),
        (fmt.percent, 0.0, "0 %"),
    ],
)
def test_numbers_read_as_people_write_them(write, x, text):
    assert write(x) == text


@given(st.floats(1, 9.9e14))
def test_a_count_can_be_read_back_to_three_digits(x):
    text = fmt.count(x)
    value = float(text[:-1]) * UNITS[text[-1]] if text[-1] in UNITS else float(text)
    # Three significant digits leave at most half a unit of the third: 0.5 %.
    assert value == pytest.approx(x, rel=0.005)
    assert len(text.rstrip("KMBT").replace(".", "")) <= 3


@given(st.floats(1, 1e23))
def test_flops_keep_their_order(x):
    prefixes = ["", "k", "M", "G", "T", "P", "E", "Z"]
    number, unit = fmt.flops(x).split()
    assert float(number) * 1000.0 ** prefixes.index(unit.removesuffix("FLOP")) == pytest.approx(
        x, rel=0.005
    )


@given(st.floats(0, 1e7))
def test_a_duration_is_within_a_unit_of_the_time(x):
    seconds = {"s": 1, "min": 60, "h": 3600, "d": 86400}
    parts = fmt.duration(x).split()
    read = sum(float(n) * seconds[u] for n, u in zip(parts[::2], parts[1::2], strict=True))
    assert read == pytest.approx(x, abs=seconds[parts[-1]])


def test_intervals_share_their_unit():
    x = Estimate(48.4e12, lo=44.5e12, hi=57.1e12)
    assert fmt.span(x, fmt.flops) == "44.5 to 57.1 TFLOP"
    assert fmt.span(Estimate(1e12, lo=9e11, hi=2e12), fmt.flops) == "900 GFLOP to 2 TFLOP"
    assert fmt.estimated(x, fmt.flops) == "48.4 TFLOP (95 % interval 44.5 to 57.1 TFLOP)"


def test_what_has_no_end_says_so():
    x = Estimate(1e6, lo=5e5, hi=math.inf)
    assert fmt.span(x, fmt.count) == "at least 500K, no upper end"
    never = Estimate(math.inf, lo=5e5, hi=math.inf)
    assert fmt.estimated(never, fmt.count, "parameters") == (
        "beyond reach (95 % interval: at least 500K parameters)"
    )
    assert fmt.estimated(Estimate(1e6, method="the runs' own path"), fmt.count) == (
        "1M (no interval: the runs' own path)"
    )


@pytest.mark.parametrize(
    ("items", "text"),
    [([], ""), (["a"], "a"), (["a", "b"], "a and b"), (list("abc"), "a, b and c")],
)
def test_lists_read_as_sentences(items, text):
    assert fmt.listed(items) == text


def test_a_sentence_is_prefixed_with_its_family():
    lstm, ngram = (
        SimpleNamespace(name="lstm", notes=("The law missed.",), claims=()),
        SimpleNamespace(name="ngram", notes=("It is flat.",), claims=()),
    )
    assert of_family(lstm, "The law missed.") == "LSTM: the law missed."
    assert of_family(ngram, "It is flat.") == "N-gram: it is flat."
    alone = SimpleNamespace(families=(lstm,), notes=("Few runs.",))
    assert doubts(alone) == ["Few runs.", "The law missed."]
    both = SimpleNamespace(families=(lstm, ngram), notes=())
    assert doubts(both) == ["LSTM: the law missed.", "N-gram: it is flat."]


@pytest.mark.parametrize(
    ("family", "text"),
    [
        ("vqvae", "VQ-VAE"),
        ("vae", "VAE"),
        ("info_vae", "InfoVAE"),
        ("glow", "GLOW"),
        ("lstm", "LSTM"),
    ],
)
def test_families_are_written_as_their_papers_write_them(family, text):
    assert fmt.family(family) == text
