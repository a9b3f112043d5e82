"""The evolution of a continuous flow's density, as the report shows it."""

import torch

from allometry.models import flows
from allometry.report.flow_evolution import evolution, field_of, rates


def test_what_changes_is_what_flows_in_less_what_flows_out():
    flow = flows.continuous(2, 8, steps=8)
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in flow.parameters():
            p.add_(0.4 * torch.randn(p.shape, generator=rng))
    field = field_of(flow)
    x = torch.randn(6, 2, generator=rng)
    for t in (0.0, 0.4, 1.0):
        change, flux = rates(field, x, t)
        assert change.abs().max() > 0.01
        # Central differences err by the square of their step; densities are of the order of .1.
        torch.testing.assert_close(change, flux, rtol=0, atol=2e-4)
    # With the sign of the flux turned round they would differ by twice the change.
    picture = evolution(field, "continuous")
    share = float(picture.caption.split("differ by ")[1].split(" %")[0])
    assert share < 2
    assert picture.address.startswith("data:image/png")


def test_other_flows_have_no_field():
    assert field_of(flows.affine_coupling(2, 2, 4)) is None
    assert field_of(flows.continuous(3, 4, steps=2)) is None
