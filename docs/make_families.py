"""Draw families against size for docs/benchmarks.md: `python docs/make_families.py NAME=RUNS ...`.

RUNS is a folder that `allometry run TEXT --family ... --seeds 2` has filled; the picture becomes
docs/figures/families_NAME.svg, and the tables go to standard output.
"""

import sys
from pathlib import Path

from allometry.report import theme
from allometry.report.sections import families
from allometry.study import Runs

FIGURES = Path(__file__).parent / "figures"


def main(given: list[str]) -> None:
    for pair in given:
        name, _, folder = pair.partition("=")
        runs = Runs(Path(folder))
        chart = families.chart(runs, "nats per character")
        if chart is None:
            raise SystemExit(f"{folder} has fewer than two families.")
        (FIGURES / f"families_{name}.svg").write_text(theme.on_paper(theme.svg(chart)))
        out = [f"## {name}", "| family | " + "sizes: loss (between seeds) |"]
        for family, members in families.at_one_budget(runs).items():
            shown = (
                f"{c.N:,.0f}: {c.loss.value:.3f} ± {1.96 * (c.spread or 0):.3f}" for c in members
            )
            out.append(f"| {family} | {', '.join(shown)} |")
        for m in families.meetings(runs):
            lo, hi = m.N.interval
            out.append(
                f"{m.large} overtakes {m.small} at {m.N.value:,.0f} ({lo:,.0f} to {hi:,.0f}), "
                f"in {m.share:.0%} of the draws"
            )
        print("\n".join(out))


if __name__ == "__main__":
    main(sys.argv[1:])
