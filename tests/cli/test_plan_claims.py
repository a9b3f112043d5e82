"""What `allometry plan` says where data are limited or its law does not describe the runs."""

import json

import numpy as np
from typer.testing import CliRunner

from allometry.cli import app


def folder(place, unique, *, rising=False):
    """A study's folder with runs over a grid of sizes and data."""
    place.mkdir()
    N, D = (x.ravel() for x in np.meshgrid(np.geomspace(1e3, 1e5, 5), np.geomspace(2e4, 2e6, 3)))
    rng = np.random.default_rng(0)
    loss = (0.8 + 12 / N**0.28 + 40 / D**0.35) * np.exp(0.002 * rng.standard_normal(len(N)))
    loss = 1 + 0.2 * np.log(N) if rising else loss
    rows = [
        {"key": f"{i:016x}", "family": "transformer", "target": "notes", "shape": "", "rung": 0,
         "seed": 0, "N": n, "D": d, "D_unique": unique, "C": 6 * n * d, "loss": y,
         "status": "done"}
        for i, (n, d, y) in enumerate(zip(N, D, loss, strict=True))
    ]  # fmt: skip
    target = {"name": "notes", "unit": "nats per character", "D_unique": unique}
    keys = [row["key"] for row in rows]
    (place / "study.json").write_text(json.dumps({"target": target, "runs": keys}))
    (place / "journal.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return place


def planned(place, *options):
    done = CliRunner().invoke(app, ["plan", str(place), "--compute", "1e14", "--json", *options])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_a_plan_on_limited_data_says_so_and_counts_it(tmp_path):
    # 17.6M tokens were advised on a study of 1M characters without a word.
    free = planned(folder(tmp_path / "much", 10**12))
    few = planned(folder(tmp_path / "few", 10**6))
    assert free["D"]["value"] > 1e6
    assert few["loss"]["value"] > free["loss"]["value"]
    assert any("passes over the 1M characters available" in w for w in few["warnings"])
    assert not any("passes over" in w for w in free["warnings"])
    asked = planned(tmp_path / "few", "--unique-tokens", "1e12")
    assert asked["D"] == free["D"]


def test_a_plan_that_the_runs_deny_is_not_supported(tmp_path):
    (claim,) = planned(folder(tmp_path / "runs", 10**12, rising=True))["claims"]
    assert claim["status"] == "not supported"
    assert claim["reason"]
