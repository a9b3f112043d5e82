"""The loss of discrete diffusion is marked as a bound."""

from allometry.study.all_families import likelihood_kind
from allometry.targets import Text


def test_discrete_diffusion_of_text_is_a_bound():
    text = Text.embedded()
    assert likelihood_kind("masked_diffusion", text) == "bound"
    assert likelihood_kind("uniform_diffusion", text) == "bound"
    assert likelihood_kind("transformer", text) == "exact"
