"""How cost grows: CPU seconds and peak memory against size, with fitted exponents.

    python bench/growth.py [--only fit decode ...] [--scale 1.0] [--page docs/growth_of_cost.md]

Each job runs at sizes evenly spaced in the logarithm, and the smallest of `REPEATS` CPU times is
kept. `laws.allometric.allometry` (least squares of the logs, Student's t) gives the exponent with
its 95 % interval. Fixed costs flatten the smallest sizes, so the exponent of the upper half of the
sizes is printed too. With `--page` the table and log-log charts are written as a page. `--scale`
multiplies all sizes.
"""

import argparse
import json
import math
import tempfile
import time
import tracemalloc
import warnings
from pathlib import Path

import needs
import numpy as np

REPEATS = 1
BOUNDS = {"fit": 1.1, "report": 1.1, "measures, rows": 2.1}
"""Largest exponents that we allow."""


def table(n, seed=0):
    rng = np.random.default_rng(seed)
    N, D = 10 ** rng.uniform(5, 9, n), 10 ** rng.uniform(7, 11, n)
    loss = 1.7 + 400 / N**0.34 + 410 / D**0.28
    return {"N": N, "D": D, "loss": loss * np.exp(0.003 * rng.normal(size=n))}


def fit(n):
    from allometry import laws

    rows = table(n)
    return lambda: laws.fit(rows, form="chinchilla")


def journal(n):
    from allometry.runs.journal import Journal

    folder = Path(tempfile.mkdtemp())
    line = {"family": "t", "target": "x", "status": "done", "sample": "word " * 40}
    rows = zip(*table(n).values(), strict=True)
    with (folder / "journal.jsonl").open("w") as file:
        for i, (N, D, loss) in enumerate(rows):
            about = {"key": f"{i:016x}", "N": N, "D": D, "loss": loss}
            file.write(json.dumps(line | about) + "\n")
    return lambda: len(Journal(folder / "journal.jsonl").settled())


def report(n):
    import folders

    from allometry import report
    from allometry.study import Runs

    folder = Path(tempfile.mkdtemp())
    folders.make(folder, n, max(50, min(n, 1000)), False)
    return lambda: report.analyse(Runs(folder))


def measures(n, d=16):
    from allometry.measure import frechet_distance, mmd2, sliced_wasserstein

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(n, d)), 0.1 + rng.normal(size=(n, d))

    def work():
        frechet_distance(x, y)
        mmd2(x, y)
        sliced_wasserstein(x, y)

    return work


def universal(cells):
    import torch

    from allometry import construct

    return lambda: construct.universal(torch.sin, d=1, n=2, delta=1 / cells, positions=True)


def rank(n):
    from allometry.measure.prime_field_rank import prime_rank

    matrix = np.random.default_rng(0).integers(-9, 9, (n, n)).astype(float)
    return lambda: prime_rank(matrix)


def decode(n):
    import torch

    from allometry.decode import sample
    from allometry.models import Transformer

    model = Transformer(64, 64, 2, 4, 1024, rng=torch.Generator().manual_seed(0)).eval()
    return lambda: sample(model, [1], n=n)


JOBS = {
    "fit": ("runs", fit, (100, 200, 400, 800, 1600)),
    "report": ("runs", report, (200, 400, 800, 1600, 3200)),
    "journal": ("lines", journal, (1000, 3000, 10_000, 30_000, 100_000)),
    "measures, rows": ("rows", measures, (500, 1000, 2000, 4000, 8000)),
    "measures, features": ("features", lambda d: measures(1000, d), (8, 16, 32, 64, 128)),
    "construct": ("1/delta", universal, (2, 4, 8, 16)),
    "exact rank": ("rows", rank, (64, 128, 256, 512, 1024)),
    "decode": ("tokens", decode, (32, 64, 128, 256, 512)),
}


def cost(make, size):
    """The smallest CPU seconds of a job, and the peak of its allocations by Python in MB."""
    work, spent = make(size), []
    for _ in range(REPEATS):
        started = time.process_time()
        work()
        spent.append(time.process_time() - started)
    tracemalloc.start()
    work()  # apart: tracing allocations takes time
    peak = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    return min(spent), peak


def exponent(sizes, values):
    from allometry.laws.allometric import allometry

    found = allometry(sizes, np.maximum(values, 1e-6)).exponent
    lo, hi = found.interval
    return found.value, lo, hi


def measured(names, scale):
    rows = {}
    for name in names:
        unit, make, sizes = JOBS[name]
        sizes = sorted({max(2, round(size * scale)) for size in sizes})
        make(sizes[0])()  # imports and warm-up do not count
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = [cost(make, size) for size in sizes]
        seconds, memory = zip(*found, strict=True)
        a, lo, hi = exponent(sizes, seconds)
        half = len(sizes) // 2
        upper = math.log(seconds[-1] / seconds[half]) / math.log(sizes[-1] / sizes[half])
        m = exponent(sizes, memory)[0]
        rows[name] = (unit, sizes, seconds, memory, (a, lo, hi), upper, m)
        bound = f", at most {BOUNDS[name]} wanted" if name in BOUNDS else ""
        print(
            f"{name:20} {unit:9} {sizes[0]:>6} to {sizes[-1]:<7} CPU s {seconds[0]:.3g} to "
            f"{seconds[-1]:.3g}: exponent {a:.2f} ({lo:.2f} to {hi:.2f}), upper half {upper:.2f}"
            f"{bound}; memory {memory[-1]:.0f} MB, exponent {m:.2f}",
            flush=True,
        )
    return rows


def chart(name, unit, sizes, seconds, fitted):
    """A log-log chart as SVG: points and the fitted line."""
    x, y = np.log10(sizes), np.log10(seconds)
    line = np.polyval(np.polyfit(x, y, 1), x)
    low, high = math.floor(min(y.min(), line.min())), math.ceil(max(y.max(), line.max()))
    first, last = math.floor(x.min()), math.ceil(x.max())

    def at(u, v):
        return 50 + 230 * (u - first) / (last - first), 170 - 140 * (v - low) / (high - low)

    parts = [f'<svg viewBox="0 0 300 210" width="300" role="img" aria-label="{name}: CPU seconds '
             f'against {unit}, exponent {fitted:.2f}" style="color: inherit">']  # fmt: skip
    style = 'stroke="currentColor" stroke-opacity="0.25"'
    for u in range(first, last + 1):
        p, q = at(u, low)
        parts.append(f'<line x1="{p:.1f}" y1="{q:.1f}" x2="{p:.1f}" y2="30" {style}/>')
        parts.append(_text(p, 186, f"1e{u}", "middle"))
    for v in range(low, high + 1):
        p, q = at(first, v)
        parts.append(f'<line x1="{p:.1f}" y1="{q:.1f}" x2="280" y2="{q:.1f}" {style}/>')
        parts.append(_text(46, q + 4, f"1e{v}", "end"))
    ends = " ".join(f"{a:.1f},{b:.1f}" for a, b in (at(x[i], line[i]) for i in (0, -1)))
    parts.append(f'<polyline points="{ends}" fill="none" stroke="#4c78a8" stroke-width="2"/>')
    parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="4" fill="#f58518"/>'
              for a, b in map(at, x, y)]  # fmt: skip
    parts += [_text(150, 18, f"{name}: exponent {fitted:.2f}", "middle"),
              _text(165, 203, unit, "middle"), "</svg>"]  # fmt: skip
    return "".join(parts)


def _text(x, y, words, anchor):
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="11" fill="currentColor" '
        f'text-anchor="{anchor}">{words}</text>'
    )


def page(rows):
    """The page, in Markdown."""
    lines = [
        "# Growth of cost",
        "",
        "CPU seconds against size, one thread, by `python bench/growth.py --page "
        "docs/growth_of_cost.md`. Exponents are least-squares fits of the logs with 95 % "
        "intervals ([allometric statistics](laws.md)). Fixed costs flatten the smallest sizes, so "
        "the slope between the middle and the largest size stands beside. Memory is the peak of "
        "allocations that Python sees; torch's own are not among them.",
        "",
        "| job | size | CPU s, largest | exponent | upper half | wanted | memory, exponent |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, (unit, sizes, seconds, memory, (a, lo, hi), upper, m) in rows.items():
        bound = f"at most {BOUNDS[name]}" if name in BOUNDS else ""
        lines.append(
            f"| {name} | {sizes[0]:,} to {sizes[-1]:,} {unit} | {seconds[-1]:.2g} | {a:.2f} "
            f"({lo:.2f} to {hi:.2f}) | {upper:.2f} | {bound} | {memory[-1]:.0f} MB, {m:.2f} |"
        )
    lines += ["", '<div style="display: flex; flex-wrap: wrap; gap: 1rem">']
    for name, (unit, sizes, seconds, _, (a, _, _), *_) in rows.items():
        lines.append(chart(name, unit, sizes, seconds, a))
    return "\n".join([*lines, "</div>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=list(JOBS), default=list(JOBS))
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--page", type=Path)
    asked = parser.parse_args()
    rows = measured(asked.only, asked.scale)
    if asked.page is not None:
        asked.page.write_text(page(rows), encoding="utf-8")


if __name__ == "__main__":
    needs.run(main)
