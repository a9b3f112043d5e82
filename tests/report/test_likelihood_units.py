"""One likelihood in nats, bits and perplexity, with its intervals."""

import dataclasses
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allometry._core.estimate import Estimate
from allometry.cli.study_json import plain
from allometry.measure.likelihood import bits, perplexity
from allometry.report import likelihood_units
from allometry.report.page import render
from allometry.report.terminal import closing
from tests.report.synthetic import analysis, synthetic_runs
from tests.report.test_terminal import printed


def test_nats_convert_to_bits_and_perplexity():
    in_bits, unsure = likelihood_units.others("nats per character")
    loss = Estimate(math.log(2), se=0.1)
    assert in_bits.name == "bits per character"
    assert in_bits.of(loss).value == pytest.approx(1.0, rel=1e-15)
    assert unsure.of(loss).value == pytest.approx(2.0, rel=1e-15)
    # ln 2 nats are the choice among two: so is the upper end among e^hi.
    assert unsure.of(loss).hi == pytest.approx(2 * math.exp(1.959964 * 0.1), rel=1e-6)
    assert unsure.of(loss).se == pytest.approx(0.2)


@given(value=st.floats(0.01, 9), se=st.floats(1e-4, 0.5))
def test_units_agree_with_the_measures_of_that_name(value, se):
    loss = Estimate(value, se=se)
    in_bits, unsure = likelihood_units.others("nats per token")
    assert in_bits.of(loss) == bits(loss)
    assert unsure.of(loss) == perplexity(loss)
    lo, hi = unsure.of(loss).interval
    assert lo < unsure.of(loss).value < hi


def test_a_token_of_several_characters_has_bits_per_character():
    each, character, _ = likelihood_units.others("nats per token", 2.5)
    loss = Estimate(3.0, se=0.1)
    assert character.name == "bits per character"
    assert character.of(loss).value == pytest.approx(each.of(loss).value / 2.5)


def test_images_have_nats():
    (nats,) = likelihood_units.others("bits per dimension")
    assert nats.of(Estimate(2.0)).value == pytest.approx(2 * math.log(2))
    _, image = likelihood_units.others("bits per dimension", dimensions=64)
    assert image.name == "nats per image"
    assert image.of(Estimate(2.0)).value == pytest.approx(128 * math.log(2))


@pytest.mark.parametrize("unit", ["nats", "nats per row", "nats per window", "", "distance"])
def test_what_is_no_choice_among_symbols_has_no_perplexity(unit):
    assert likelihood_units.others(unit) == ()


def test_the_aside_of_a_generated_text():
    assert (
        likelihood_units.aside(1.5, "nats per character")
        == "2.164 bits per character, perplexity 4.48"
    )
    assert likelihood_units.aside(1.5, "nats") == ""


def test_a_text_study_has_all_three_units():
    result = analysis()
    table = likelihood_units.table(result)
    assert table is not None
    heads = [h.text for h in table.heads]
    assert heads[2:] == ["Nats per character", "Bits per character", "Perplexity"]
    loss = result.best.loss
    best = table.rows[0]
    assert best[2].order == pytest.approx(loss.value)
    assert best[3].order == pytest.approx(loss.value / math.log(2))
    assert best[4].order == pytest.approx(math.exp(loss.value))
    lo, hi = (math.exp(x) for x in loss.interval)
    assert best[4].more == f"({lo:.2f} to {hi:.2f})"
    page, _ = render(synthetic_runs(), result)
    assert "Bits per character" in page
    assert "Perplexity" in page
    answer = plain(result)
    assert answer["units"]["perplexity"]["value"] == pytest.approx(math.exp(loss.value))
    json.dumps(answer)


def test_the_test_split_has_rows_of_its_own():
    result = analysis()
    best = dataclasses.replace(result.families[0].best, test=Estimate(1.25, se=0.01))
    first = dataclasses.replace(result.families[0], best=best)
    table = likelihood_units.table(dataclasses.replace(result, families=(first,)))
    assert table is not None
    assert [r[2].text for r in table.rows if r[1].text == "test"] == ["1.250"]


def test_the_terminal_has_the_table():
    assert "Perplexity" in printed(closing(analysis()), 140)


def test_a_huge_loss_has_a_perplexity_that_can_be_printed():
    """It ended in OverflowError."""
    assert likelihood_units.aside(1e4, "nats per token").endswith("perplexity 1.01e+304")
