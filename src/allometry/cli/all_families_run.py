"""`allometry run JOB --all`: every family at equal compute, on one page."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from rich.table import Table

from allometry._core.errors import InputError, require
from allometry.cli.console import err, out, say, write_json
from allometry.cli.study_run import StudyRun

if TYPE_CHECKING:
    from allometry.laws import FamilyChoice
    from allometry.report.family_chart import MeasureChart
    from allometry.study import Executor, FamilyGroup
    from allometry.study.common_measures import MeasuredRun


MEASURES = {"likelihood": "loss", "distance": "sliced Wasserstein distance"}
"""What less is better of, in sentences."""


@final
@dataclass
class AllFamilies:
    """The comparison of one command.

    Args:
        target: What the models learn.
        groups: Families with one loss each.
        notes: What was left out.
        folder: Has one folder for each group.
        executor: Carries the runs out.
        context: Tokens in a window of text.
        json: Print JSON instead of text.
    """

    target: Any
    groups: "Sequence[FamilyGroup]"
    notes: Sequence[str]
    folder: Path
    executor: "Executor"
    context: int = 64
    json: bool = False
    _problems: list[str] = field(default_factory=list)

    def _study(self, group: "FamilyGroup") -> StudyRun:
        return StudyRun(group.study, self.folder / group.name, self.executor, json=self.json)

    def print_grid(self) -> None:
        """Print the runs with their estimated cost."""
        for note in self.notes:
            say(note)
        for group in self.groups:
            self._study(group).print_grid()

    def execute(self) -> None:
        """Train, measure, fit, write the page and print the answer."""
        for note in self.notes:
            say(note)
        for group in self.groups:
            self._study(group).train()
        measured = self._measure()
        charts = self._charts(measured)
        answer = [s for chart in charts for s in chart.choice.words(MEASURES[chart.name])]
        page = self._page(charts, measured, answer)
        if self.json:
            found = {chart.name: chart.choice.to_dict() for chart in charts}
            write_json({"answer": answer, "notes": [*self.notes, *self._problems]} | found)
        else:
            for chart in charts:
                out.print(_terminal(chart))
            for sentence in answer:
                out.print(sentence)
        for problem in self._problems:
            say(problem)
        say(f"Page: {page}")

    def _measure(self) -> "list[MeasuredRun]":
        """The common measures of all runs; none of tables, nor of texts with few test data."""
        from allometry.study.common_measures import measure_runs

        runs: list[MeasuredRun] = []
        with err.status("Measuring samples ...") as status:
            for group in self.groups:

                def watch(done: int, total: int, name: str = group.name) -> None:
                    status.update(f"Measuring samples: {name}, {done} of {total} models ...")

                folder, given = self.folder / group.name, {"context": self.context, "watch": watch}
                try:
                    runs += measure_runs(folder, self.target, **given)
                except InputError as error:  # the losses are still compared
                    self._problems.append(f"Samples are not measured: {error}")
        return runs

    def _charts(self, measured: "Sequence[MeasuredRun]") -> "list[MeasureChart]":
        from allometry.report.family_chart import MeasureChart
        from allometry.study.common_measures import reference

        charts = []
        for group in self.groups:
            if group.name == "samples":
                continue
            losses = self._losses(group)
            unit = str(group.study.target.describe().get("unit", ""))
            entropy = getattr(self.target, "entropy", None)
            least = None if entropy is None else float(entropy.value)
            choice = self._choice(losses, least)
            if choice is not None:
                kinds = _likelihood_kinds(self.target, losses)
                charts.append(
                    MeasureChart("likelihood", f"Loss, {unit}", choice, kinds, least, bounded=True)
                )
        if measured:
            found: dict[str, list[tuple[float, float]]] = {}
            for run in measured:
                value = run.measures["sliced_wasserstein"].value
                found.setdefault(run.family, []).append((run.C, value))
            floor = reference(self.target, context=self.context)["sliced_wasserstein"].value
            choice = self._choice({k: _columns(v) for k, v in found.items()}, None)
            if choice is not None:
                title = "Sliced Wasserstein distance of samples to test data"
                if measured[0].excerpts:
                    title += ", by frequent 2- to 4-grams"
                charts.insert(0, MeasureChart("distance", title, choice, reference=floor))
        if not charts:
            for problem in self._problems:
                say(problem)
            raise InputError(
                f"{self.folder} must hold at least two families with enough finished runs to be "
                "ranked; got fewer. Give more budgets or seeds (--rungs 4 --seeds 2); the reports "
                "of its folders state why runs failed."
            )
        return charts

    def _choice(
        self, found: Mapping[str, tuple[list[float], list[float]]], least: float | None
    ) -> "FamilyChoice | None":
        from allometry.laws import choose_family

        if len(found) < 2:
            return None
        choice = choose_family(found, least=least)
        for f in choice.forecasts:
            if f.law is None:
                self._problems.append(f"{f.name} has no scaling law: {f.why}")
        return choice if choice.rankings else None

    def _losses(self, group: "FamilyGroup") -> dict[str, tuple[list[float], list[float]]]:
        """Compute and validation loss of the finished runs by family."""
        from allometry.study import Runs

        frame = Runs(self.folder / group.name).frame()
        failed = int((frame["status"] != "done").sum())
        if failed:
            self._problems.append(f"{failed} runs of {group.name} failed or diverged.")
        done = frame[frame["status"] == "done"]
        return {
            str(name): (part["C"].tolist(), part["loss"].tolist())
            for name, part in done.groupby("family")
        }

    def _page(
        self,
        charts: "Sequence[MeasureChart]",
        measured: "Sequence[MeasuredRun]",
        answer: Sequence[str],
    ) -> Path:
        from allometry.report import family_chart

        table, samples, budgets = None, [], []
        if measured:
            table = family_chart.measure_table(*_largest(measured))
            budgets = [float(C) for C in self.groups[0].study.ladder]
            samples = _samples(measured, budgets, getattr(self.target, "levels", None))
        return family_chart.write(
            self.folder / "families.html",
            f"Which family for {self.target.name}?",
            charts,
            answer=answer,
            notes=[*self.notes, *self._problems],
            measures=table,
            samples=samples,
            budgets=budgets,
        )


def refuse(flags: Sequence[str]) -> None:
    """Refuse options that a comparison of all families would ignore."""
    fix = "Sizes and data follow from the compute; give --flops and --rungs."
    require(not flags, "--all", "be given without these options", ", ".join(flags), fix)


def run(
    job: str,
    families: Sequence[str],
    folder: Path | None,
    executor: "Executor",
    *,
    rungs: int | None,
    seeds: int | None,
    flops: float | None,
    vocabulary: str,
    context: int,
    dry_run: bool,
    json: bool,
) -> None:
    """Carry out the command."""
    from allometry.study import family_groups, jobs

    target = jobs.target(job, vocabulary=vocabulary)
    groups, notes = family_groups(
        target,
        families=families,
        rungs=4 if rungs is None else rungs,
        seeds=2 if seeds is None else seeds,
        flops=flops,
        context=context,
    )
    folder = folder or Path("runs") / f"{target.name}-families"
    comparison = AllFamilies(target, groups, notes, folder, executor, context, json)
    if dry_run:
        comparison.print_grid()
    else:
        comparison.execute()


def _columns(pairs: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [a for a, _ in pairs], [b for _, b in pairs]


def _likelihood_kinds(target: Any, families: Mapping[str, Any]) -> dict[str, str]:
    """Whether a family's loss is its likelihood or a bound on it."""
    from allometry.study.all_families import likelihood_kind

    return {name: likelihood_kind(name, target) for name in families}


def _largest(
    measured: "Sequence[MeasuredRun]",
) -> tuple[dict[str, dict[str, Any]], dict[str, float]]:
    """Measures and seconds of each family at its largest budget: means over seeds."""
    from allometry._core.estimate import Estimate

    means: dict[str, dict[str, Any]] = {}
    seconds: dict[str, float] = {}
    for family, part in itertools.groupby(
        sorted(measured, key=lambda r: r.family), key=lambda r: r.family
    ):
        runs = list(part)
        top = max(run.C for run in runs)
        runs = [run for run in runs if 0.8 * top < run.C]
        means[family] = {
            name: Estimate(sum(r.measures[name].value for r in runs) / len(runs))
            for name in runs[0].measures
        }
        seconds[family] = sum(run.seconds for run in runs) / len(runs)
    order = sorted(means, key=lambda name: means[name]["sliced_wasserstein"].value)
    return {name: means[name] for name in order}, seconds


def _samples(
    measured: "Sequence[MeasuredRun]", budgets: Sequence[float], levels: int | None
) -> list[Any]:
    """A picture of the first seed of each family at each budget."""
    from allometry.report.family_chart import FamilySamples, picture

    rows = []
    for name in dict.fromkeys(run.family for run in measured):
        images, texts = [], []
        for C in budgets:
            near = [
                run
                for run in measured
                if run.family == name and abs(math.log(run.C / C)) < math.log(1.5)
            ]
            near.sort(key=lambda run: run.seed)
            images.append(picture(near[0].pictures, levels) if near else "")
            texts.append(near[0].excerpts if near else ())
        rows.append(FamilySamples(name, tuple(images), tuple(texts)))
    return rows


def _terminal(chart: "MeasureChart") -> Table:
    """Predictions by family and budget for the terminal; intervals are in the page."""
    from allometry.report import formatting as fmt
    from allometry.report.family_chart import by_rank, short_flops

    rankings = chart.choice.rankings
    shown = Table(title=chart.title, box=None, pad_edge=False, header_style="dim")
    shown.add_column("family")
    for r in rankings:
        shown.add_column(f"at {short_flops(r.C)} FLOP (P best)", justify="right")
    for f in by_rank(chart.choice):
        cells = [
            f"{fmt.significant(p.value)} ({r.probabilities[f.name]:.2f})"
            if f.name in r.probabilities
            else "uncertain"
            for r, p in zip(rankings, f.predictions, strict=True)
        ]
        shown.add_row(f.name, *cells)
    return shown
