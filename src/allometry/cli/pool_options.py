"""Options of the next runs from a pool, and what `next` does with them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, final

import typer

from allometry.cli.console import out, say, write_json
from allometry.cli.variable_options import pairs, target_of

Pool = Annotated[
    Path | None,
    typer.Option(help="Table of candidate runs with the columns of --x; the next runs are of it."),
]
Target = Annotated[
    list[str] | None,
    typer.Option(
        help="What to predict, with --pool: a table, or a row given as name=value, repeated for "
        "every column."
    ),
]
ReplayFlag = Annotated[
    bool,
    typer.Option(
        "--replay",
        help="The pool has the column of --y: show what a campaign would have saved.",
    ),
]
Width = Annotated[
    float,
    typer.Option(min=0.0, help="With --pool, stop at this relative half-width of the interval."),
]


@final
@dataclass(frozen=True)
class Campaign:
    """What the options of a pool say."""

    pool: Path
    target: list[str]
    x: list[str]
    y: str
    cost: str | None
    role: list[str] | None
    seed: int

    def _common(self, pool: dict[str, Any]) -> dict[str, Any]:
        from allometry import InputError

        if not self.x or not self.target:
            missing = "--x COLUMN" if not self.x else "--target TABLE (or name=value)"
            raise InputError(f"next --pool must be given {missing}; got none.")
        if self.cost is None and "cost" not in pool:
            raise InputError(
                "next --pool must be given the cost of a run; got no --cost and no column 'cost' "
                f"in {self.pool}. Add --cost with a column, or with an expression such as "
                f"--cost '{'*'.join(self.x)}'."
            )
        return {
            "variables": self.x,
            "response": self.y,
            "cost": self.cost or "cost",
            "target": target_of(self.target),
            "seed": self.seed,
            "roles": pairs(self.role, "--role", "'lr=tuned'"),
        }

    def choose(
        self,
        runs: Path | None,
        budget: float | None,
        where: list[str] | None,
        most: int,
        width: float,
        json: bool,
    ) -> None:
        """Print the next runs."""
        from allometry import InputError
        from allometry.laws.multivariate.pool import design
        from allometry.report.prose import runs_which_cost
        from allometry.report.terminal import drawn
        from allometry.report.variable_tables import design_table
        from allometry.runs.importers.raw_columns import load_columns

        if budget is None:
            raise InputError("next --pool must be given --budget, in the unit of the cost.")
        pool = load_columns(self.pool)
        options = self._common(pool)
        observed = None if runs is None else load_columns(runs, where=where or ())
        found = design(pool, observed, budget=budget, most=most, width=width, **options)
        if json:
            write_json(found.to_dict())
            return
        if found.rows:
            out.print(drawn(design_table(found, pool, self.x)))
        before = "" if runs is None else f"\u00b1 {found.now:.2%} now and "
        if not found.rows:
            out.print(f"No run of the pool costs at most {budget:.4g}, or none is needed.")
            return
        out.print(
            f"The expected 95 % interval at the target is {before}\u00b1 {found.after:.2%} after "
            f"{runs_which_cost(len(found.rows))} {found.spent:.4g} of {budget:.4g}. It counts "
            "what runs can lower, not their noise."
        )

    def replay(self, json: bool) -> None:
        """Print what a campaign would have reached on the finished table."""
        from allometry.laws import replay
        from allometry.report.terminal import drawn
        from allometry.report.variable_tables import replay_table
        from allometry.runs.importers.raw_columns import load_columns

        pool = load_columns(self.pool)
        found = replay(pool, **self._common(pool))
        if json:
            write_json(found.to_dict())
            return
        out.print(drawn(replay_table(found)))
        enough = found.enough
        out.print(
            f"{enough.runs} runs for {enough.share:.1%} of the cost reach about the error of all "
            f"{found.steps[-1].runs} runs: {found.saved:.0%} of the cost saved."
        )
        if found.saved <= 0:
            say("! The campaign would have saved nothing here.")
