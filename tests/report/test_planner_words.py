"""Numbers and hardware in the page's scripts against Python."""

from importlib.resources import files

import numpy as np
import pytest

from allometry.laws import hardware, memory
from allometry.report import formatting as fmt
from allometry.report import plan_cost_cells, planner_data

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page(browser):
    made = browser.new_page()
    script = files("allometry.report").joinpath("templates", "planner_words.js")
    made.add_script_tag(content=script.read_text())
    yield made
    made.close()


def numbers(low, high, count=400):
    return (10 ** np.random.default_rng(0).uniform(low, high, count)).tolist()


@pytest.mark.parametrize(
    ("name", "write", "values"),
    [
        ("count", fmt.count, [*numbers(-3, 20), 999_999, 999.9999, 1e15, 12.0, 1.0]),
        ("flops", fmt.flops, [*numbers(0, 30), 9.999e23, 1e24]),
        ("loss", fmt.loss, numbers(-4, 2)),
        ("duration", fmt.duration, [*numbers(-2, 8), 59.9, 60.0, 3599.9, 86399.7]),
        ("time", plan_cost_cells.time, numbers(-4, 6)),
        ("money", lambda x: plan_cost_cells.money(x, "€"), numbers(-2, 9)),
        ("energy", plan_cost_cells.energy, numbers(-2, 9)),
        ("bytes", plan_cost_cells.storage, numbers(2, 17)),
    ],
)
def test_numbers_are_written_alike(page, name, write, values):
    found = page.evaluate(
        "([name, values]) => values.map((x) => PlannerWords[name](x, '€'))"
        if name == "money"
        else "([name, values]) => values.map((x) => PlannerWords[name](x))",
        [name, values],
    )
    assert found == [write(x) for x in values]


def test_numbers_are_read_as_written(page):
    texts = ["7B", "1e21", "2 ZFLOP", "1_000", "12,500", ".5", "3k", "1.5T tokens", "-1", "x", ""]
    found = page.evaluate("(texts) => texts.map((t) => String(PlannerWords.number(t)))", texts)
    good = ["7000000000", "1e+21", "2e+21", "1000", "12500", "0.5", "3000", "1500000000000"]
    assert found == [*good, "NaN", "NaN", "NaN"]


def test_hardware_converts_alike(page):
    rng = np.random.default_rng(1)
    known = list(dict.fromkeys(hardware.accelerators().values()))
    constants = {
        "bytes": 16,
        "activations": memory.ACTIVATIONS["attention"],
        "aspect": memory.ASPECT,
        "batch_tokens": planner_data.BATCH_TOKENS,
    }
    asked, wanted = [], []
    for _ in range(500):
        chosen = known[rng.integers(len(known))]
        count, mfu = int(10 ** rng.uniform(0, 5)), float(rng.uniform(0.01, 1))
        price, compute = float(10 ** rng.uniform(-1, 2)), float(10 ** rng.uniform(10, 27))
        N, days, money = (float(10 ** rng.uniform(a, b)) for a, b in ((3, 13), (-2, 3), (0, 9)))
        made = hardware.Hardware(chosen, count, mfu, price)
        wanted.append(
            [
                *(made.hours(compute), made.cost(compute), made.energy(compute)),
                *(made.compute_in(days=days), made.compute_for(money)),
                memory.training_memory(N, accelerators=count).per_accelerator,
            ]
        )
        plain = {
            "peak_flops": chosen.peak_flops,
            "power": chosen.power,
            "count": count,
            "mfu": mfu,
            "price": price,
        }
        asked.append([plain, compute, days, money, N])
    found = page.evaluate(
        """([rows, constants]) => rows.map(([h, compute, days, money, N]) => {
          const H = PlannerWords.hardware;
          return [H.hours(h, compute), H.cost(h, compute), H.energy(h, compute),
            H.computeInDays(h, days), H.computeFor(h, money), H.memory(h, N, constants)];
        })""",
        [asked, constants],
    )
    for got, want in zip(found, wanted, strict=True):
        assert [x is None for x in got] == [x is None for x in want]
        left, right = ([float(x) for x in row if x is not None] for row in (got, want))
        np.testing.assert_allclose(left, right, rtol=1e-12)
