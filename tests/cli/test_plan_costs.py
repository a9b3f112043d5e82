"""`allometry plan` and `next` in hours, money, energy and memory."""

import json

import numpy as np
import pytest

FORM = ("--form", "chinchilla")  # quicker than an average


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    rng = np.random.default_rng(0)
    N = np.repeat(np.geomspace(1e7, 1e9, 6), 4)
    D = N * np.tile([5.0, 12.0, 30.0, 80.0], 6)
    loss = (1.69 + 406.4 / N**0.34 + 410.7 / D**0.28) * np.exp(0.005 * rng.normal(size=24))
    place = tmp_path_factory.mktemp("costs")
    rows = zip(N, D, loss, strict=True)
    lines = ["params,tokens,loss", *(f"{n},{d},{y}" for n, d, y in rows)]
    (place / "runs.csv").write_text("\n".join(lines) + "\n")
    return place


def test_a_budget_in_days_is_planned_and_paid(table, typed):
    line = "plan runs.csv --hardware 64xH100 --mfu 0.4 --price 2.5/h --days 12 --unique 1T --json"
    done = typed(*line.split(), *FORM, cwd=table)
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["compute"] == pytest.approx(2.625011712e22, rel=1e-12)
    used = plan["usage"]
    assert used["hours"]["value"] == pytest.approx(288, rel=1e-9)
    assert used["accelerator_hours"]["value"] == pytest.approx(18432, rel=1e-9)
    assert used["cost"]["value"] == pytest.approx(46080, rel=1e-9)
    assert used["energy_kwh"]["value"] == pytest.approx(12902.4, rel=1e-9)
    assert plan["hardware"]["currency"] == "$"
    size, data = plan["N"]["value"], plan["D"]["value"]
    assert plan["memory"]["optimiser"] == pytest.approx(12 * size)
    assert plan["data"]["epochs"] == pytest.approx(data / 1e12)
    assert plan["lost_cost"]["value"] == pytest.approx(
        46080 * plan["lost"]["value"] / plan["compute"]
    )
    assert plan["next"]["runs"]
    for run in plan["next"]["runs"]:
        assert run["cost"] == pytest.approx(run["compute"] / 2.625011712e22 * 46080)


def test_a_budget_in_money_is_the_same_budget(table, typed):
    line = "plan runs.csv --hardware 64xH100 --price €2.5/h --money €46080 --json"
    plan = json.loads(typed(*line.split(), *FORM, cwd=table).stdout)
    assert plan["compute"] == pytest.approx(2.625011712e22, rel=1e-12)
    both = typed(*line.split(), *FORM, "--days", "6", cwd=table)
    assert json.loads(both.stdout)["compute"] == pytest.approx(2.625011712e22 / 2, rel=1e-12)
    assert "6 days on 64xH100 at MFU 0.4, which end before €46,080" in both.stderr


def test_the_terminal_has_hours_money_energy_memory_and_next_runs(table, typed):
    line = "plan runs.csv --hardware 64xH100 --price 2.5/h --days 12 --inference-tokens 1T"
    done = typed(*line.split(), *FORM, cwd=table)
    assert done.returncode == 0, done.stderr
    for part in ("12 d", "18.4K", "$46,080", "12.9 MWh", "fits 80 GB", "1T tokens", "This plan"):
        assert part in done.stdout
    assert "Next runs that would narrow" in done.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--days 3", "must come with --hardware"),
        ("--days -3 --hardware H100", "--days must be a positive number"),
        ("--money 100 --hardware H100", "must have a price"),
        ("--money €100 --hardware H100 --price 2/h", "one currency"),
        ("--money much --hardware H100 --price 2/h", "positive number"),
        ("--compute 1e20 --hardware 8xH900", "must name a known accelerator"),
        ("--compute 1e20 --hardware H100 --mfu 1.5", "mfu must be above 0"),
        ("--compute 1e20 --hardware H100 --price free", "An amount of money must"),
        ("--compute 1e20 --price 2/h", "must come with --hardware"),
        ("--compute 1e20 --days 3 --hardware H100", "one budget"),
        ("", "one budget"),
    ],
)
def test_wrong_budgets_are_refused(table, typed, options, message):
    done = typed("plan", "runs.csv", *options.split(), cwd=table)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_next_says_when_no_affordable_run_helps(table, typed):
    line = "next runs.csv --budget 1e17 --compute 1e22 --hardware 8xH100 --price 2/h"
    done = typed(*line.split(), *FORM, cwd=table)
    assert done.returncode == 0, done.stderr
    assert "No run within 100 PFLOP" in done.stdout
    assert "$" in done.stdout
