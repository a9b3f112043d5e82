"""The planner of a page as a person uses it: what is typed, and the numbers shown."""

import json
from typing import Any

FACTS = """() => Object.fromEntries([...document.querySelectorAll("[data-fact]")]
  .map((box) => [box.dataset.fact, box.dataset.value]))"""


def settled(page):
    """Wait until the page has shown the last change."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 60)))")


def facts(page):
    """The numbers behind the facts shown, by label."""
    settled(page)
    return {name: json.loads(text) for name, text in page.evaluate(FACTS).items() if text}


def fill(page, label, text):
    page.locator("#planner").get_by_label(label, exact=False).first.fill(text)


def answers(law, hardware, compute, **options):
    """The same facts by Python."""
    from allometry.laws import memory

    plan = law.plan(compute, **options)
    row: dict[str, Any] = {
        "Compute": compute,
        "Time": hardware.hours(compute),
        "Money": hardware.cost(compute),
    }
    row["Energy"] = hardware.energy(compute)
    row["Memory"] = memory.training_memory(
        plan.N.value, accelerators=hardware.count
    ).per_accelerator
    for name, e in (("Loss", plan.loss), ("Size N", plan.N), ("Data D", plan.D)):
        row[name] = {"value": e.value, "lo": e.lo, "hi": e.hi}
    return row


def same(found, wanted, rel=1e-6):
    """Whether two answers agree in every number."""
    assert found.keys() == wanted.keys()
    for name, want in wanted.items():
        pairs = [(found[name], want)]
        if isinstance(want, dict):
            pairs = [(found[name][k], want[k]) for k in want]
        for got, value in pairs:
            assert abs(got / value - 1) <= rel, (name, got, value)
    return True
