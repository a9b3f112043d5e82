"""Directed models against closed forms."""

import math
import xml.etree.ElementTree as ET

import pytest
import torch
from torch.distributions import Bernoulli, Normal

from allometry import InputError
from allometry.models import Directed, Node, autoencoders


def chain():
    """Wet grass: rain, sprinkler, wet."""
    return Directed(
        [
            Node(
                "w", lambda r, s: Bernoulli(0.05 + 0.9 * torch.maximum(r, s)), ("r", "s"), "", True
            ),
            Node("s", lambda r: Bernoulli(0.4 - 0.39 * r), ("r",)),
            Node("r", lambda: Bernoulli(torch.tensor(0.2))),
        ]
    )


def test_parents_come_first_and_shares_are_exact():
    model = chain()
    assert [node.name for node in model.nodes] == ["r", "s", "w"]
    drawn = model.sample(20_000)
    wet = 0.95 * (0.2 + 0.8 * 0.4) + 0.05 * 0.8 * 0.6
    assert abs(drawn["w"].mean().item() - wet) < 5 * math.sqrt(wet * (1 - wet) / 20_000)
    values = {k: torch.tensor([1.0, 0.0]) for k in "rsw"}
    log_p = model.log_prob(values)
    expected = [0.2 * 0.01 * 0.95, 0.8 * 0.6 * 0.95]
    torch.testing.assert_close(log_p.exp(), torch.tensor(expected))


def test_interventions_set_a_variable():
    drawn = chain().sample(5000, {"s": torch.ones(5000)})
    assert abs(drawn["w"].mean().item() - 0.95) < 5 * math.sqrt(0.95 * 0.05 / 5000)
    assert abs(drawn["r"].mean().item() - 0.2) < 5 * math.sqrt(0.2 * 0.8 / 5000)


def test_a_vae_is_a_directed_model():
    vae = autoencoders.dense_vae((3,), 2, autoencoders.Gaussian(0.5), hidden=(4,))
    sigma = vae.likelihood.log_sigma.exp().item()
    model = Directed(
        [
            Node("z", lambda: Normal(torch.zeros(2), 1.0), plate="N"),
            Node("x", lambda z: Normal(vae.decoder(z), sigma), ("z",), "N", True),
        ]
    )
    drawn = model.sample(6)
    expected = vae.log_likelihood(drawn["x"], drawn["z"])
    expected = expected + Normal(0.0, 1.0).log_prob(drawn["z"]).sum(1)
    torch.testing.assert_close(model.log_prob(drawn), expected)


def test_the_diagram_is_svg_with_every_part():
    root = ET.fromstring(chain().diagram())
    tags = [element.tag.rpartition("}")[2] for element in root.iter()]
    assert tags.count("circle") == 3
    assert tags.count("line") == 3
    assert {t.text for t in root.iter() if t.tag.endswith("text")} == {"r", "s", "w"}


def test_cycles_and_strangers_are_refused():
    node = Node("a", lambda b: Normal(b, 1.0), ("b",))
    with pytest.raises(InputError, match="include every parent"):
        Directed([node])
    with pytest.raises(InputError, match="no cycle"):
        Directed([node, Node("b", lambda a: Normal(a, 1.0), ("a",))])
