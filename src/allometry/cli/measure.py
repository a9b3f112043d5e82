"""`allometry measure`."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from allometry.cli.console import err, out, say, write_json

if TYPE_CHECKING:
    from allometry.measure.desiderata import Audit
    from allometry.measure.score_table import Scores

_FILES = ".npy, .npz, .csv or .safetensors"


def measure(
    real: Annotated[
        Path | None, typer.Argument(help=f"Held-out data: {_FILES}; rows or images.")
    ] = None,
    samples: Annotated[Path | None, typer.Argument(help="The model's samples, likewise.")] = None,
    labels: Annotated[Path | None, typer.Option(help="A class for each real row.")] = None,
    sample_labels: Annotated[Path | None, typer.Option(help="A class for each sample.")] = None,
    training: Annotated[
        Path | None, typer.Option(help="What the model was trained on, to find copies.")
    ] = None,
    rival: Annotated[
        list[Path] | None, typer.Option(help="Another model's samples; give it again for more.")
    ] = None,
    features: Annotated[
        str, typer.Option(help="identity, pca, pca:K, random, classifier, or a .onnx file.")
    ] = "identity",
    only: Annotated[
        list[str] | None, typer.Option(help="A measure, or how names begin; again for more.")
    ] = None,
    audit: Annotated[
        bool, typer.Option("--audit", help="Put the measures themselves to the test.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Of everything drawn.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """What samples are worth: every measure of two sets, with intervals.

    `--audit` needs no samples: it spoils real data (scikit-learn's digits if none are given) in
    known ways and tells which measure sees what.
    """
    from allometry._core.errors import require
    from allometry.measure import sample_inputs, score_table
    from allometry.measure.diversity import FEWER
    from allometry.measure.features import identity

    data = None if real is None else sample_inputs.load(real)
    known = None if labels is None else sample_inputs.load(labels)
    space = identity() if data is None else score_table.feature_map(features, data, known, seed)
    if audit:
        _audit(data, known, space, only, seed, json)
        return
    require(samples is not None, "SAMPLES", "be given beside REAL", None, "Or say --audit.")
    assert data is not None
    assert samples is not None
    others = [sample_labels, training, *(rival or [])]
    loaded: list[Any] = [None if path is None else sample_inputs.load(path) for path in others]
    with err.status("measuring") as status:
        scores = score_table.score(
            data,
            sample_inputs.load(samples),
            labels=known,
            sample_labels=loaded[0],
            training=loaded[1],
            rivals=dict(zip((p.stem for p in rival or []), loaded[2:], strict=True)),
            features=space,
            only=only or None,
            seed=seed,
            watch=lambda name: status.update(name),
        )
    if json:
        write_json(scores.to_dict())
    else:
        if scores.verdict is not None:
            out.print(f"Verdict: {scores.verdict.summary}", highlight=False)
            for note in scores.verdict.notes:
                say(f"{note[0].upper()}{note[1:]}.")
        out.print(scores_table(scores))
    for row in scores.rows:
        if FEWER in row.estimate.method:
            say(f"{row.name}: {row.estimate.method}")
    for name, why in scores.skipped.items():
        say(f"{name} was left out: {why}")


def _audit(
    data: Any, labels: Any, space: Any, only: list[str] | None, seed: int, json: bool
) -> None:
    from allometry.measure import desiderata

    with err.status("auditing") as status:
        found = desiderata.audit(
            data,
            labels=labels,
            features=space,
            seed=seed,
            only=only or None,
            watch=lambda name, share: status.update(f"{name}, {share:.0%} done"),
        )
    if json:
        write_json(found.to_dict())
        return
    out.print(audit_table(found))
    say("Numbers are standard deviations of one measurement; 3 or more is seen. +: met.")
    for number, words in enumerate(desiderata.DESIDERATA, 1):
        say(f"D{number} {words}")
    for name, why in found.skipped.items():
        say(f"{name} was left out: {why}")


def scores_table(scores: "Scores") -> Table:
    """All scores, one a line."""
    table = Table(box=None, pad_edge=False)
    for column in ("measure", "value", "95 % from", "to", "better", "features"):
        table.add_column(column, justify="left" if column in ("measure", "features") else "right")
    for row in scores.rows:
        lo, hi = row.estimate.interval
        ends = [
            "" if math.isinf(end) and row.estimate.lo is None else f"{end:.4g}" for end in (lo, hi)
        ]
        table.add_row(row.name, str(row.estimate), *ends, row.better, row.features)
    return table


def audit_table(found: "Audit") -> Table:
    """Which measure sees what."""
    from allometry.measure.desiderata import EXPERIMENTS

    table = Table(box=None, pad_edge=False)
    table.add_column("measure")
    heads = [*EXPERIMENTS, "ranking", "s", *(f"D{i}" for i in range(1, 8))]
    for head in heads:
        table.add_column(head, justify="right")
    for v in found.verdicts:
        effects = [_effect(v.effects.get(name)) for name in EXPERIMENTS]
        marks = ["+" if m == 1 else "-" if m == 0 else "±" for m in v.meets]
        ranking = "" if math.isnan(v.ranking) else f"{v.ranking:.2f}"
        table.add_row(v.name, *effects, ranking, f"{v.seconds:.2f}", *marks)
    return table


def _effect(value: float | None) -> str:
    return "" if value is None else f"{max(-99.0, min(99.0, value)):.1f}"
