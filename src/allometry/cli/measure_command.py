"""`allometry measure`."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from allometry.cli import option_types
from allometry.cli.console import err, out, say, write_json

if TYPE_CHECKING:
    from allometry.measure.desiderata import Audit
    from allometry.measure.score_table import Scores

_FILES = ".npy, .npz, .csv or .safetensors"


def measure(
    real: Annotated[
        Path | None, typer.Argument(help=f"Held-out data as rows or images: {_FILES}.")
    ] = None,
    samples: Annotated[
        Path | None, typer.Argument(help=f"Samples of the model: {_FILES}.")
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(help="File with a class of each real row.")
    ] = None,
    sample_labels: Annotated[
        Path | None, typer.Option(help="File with a class of each sample.")
    ] = None,
    training: Annotated[
        Path | None, typer.Option(help="Training data of the model, to detect memorised rows.")
    ] = None,
    rival: Annotated[
        list[Path] | None,
        typer.Option(help="Samples of another model. Repeat the option for several."),
    ] = None,
    features: Annotated[
        str,
        typer.Option(
            help="Feature map: identity, pca, pca:K, random, classifier, or a .onnx file."
        ),
    ] = "identity",
    only: Annotated[
        list[str] | None,
        typer.Option(help="A measure or a prefix of names. Repeat the option for several."),
    ] = None,
    audit: Annotated[
        bool, typer.Option("--audit", help="Test the measures themselves on corrupted data.")
    ] = False,
    seed: Annotated[
        int, typer.Option(min=0, max=option_types.LARGEST_SEED, help="Seed of all random numbers.")
    ] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print the scores as JSON.")] = False,
) -> None:
    """Compare a model's samples with held-out data by all evaluation metrics, with intervals.

    `--audit` needs no samples: it corrupts real data (default: scikit-learn's digits) in known
    ways and shows which measure detects which corruption.
    """
    from allometry._core.errors import require, require_seed
    from allometry.measure import sample_inputs, score_table
    from allometry.measure.features import identity

    data = None if real is None else sample_inputs.load(real)
    known = None if labels is None else sample_inputs.load(labels)
    require_seed(seed)
    space = identity() if data is None else score_table.feature_map(features, data, known, seed)
    if audit:
        _audit(data, known, space, only, seed, json)
        return
    require(samples is not None, "SAMPLES", "be given beside REAL", None, "Or use --audit.")
    assert data is not None
    assert samples is not None
    others = [sample_labels, training, *(rival or [])]
    loaded: list[Any] = [None if path is None else sample_inputs.load(path) for path in others]
    with err.status("Measuring ...") as status:
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
    _print_scores(scores, json)


def _print_scores(scores: "Scores", json: bool) -> None:
    from allometry.measure.diversity import FEWER

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
    for name, reason in scores.skipped.items():
        say(f"{name} was left out: {reason}")


def _audit(
    data: Any, labels: Any, space: Any, only: list[str] | None, seed: int, json: bool
) -> None:
    from allometry.measure import desiderata

    with err.status("Auditing ...") as status:
        result = desiderata.audit(
            data,
            labels=labels,
            features=space,
            seed=seed,
            only=only or None,
            watch=lambda name, share: status.update(f"{name}, {share:.0%} done"),
        )
    if json:
        write_json(result.to_dict())
        return
    out.print(audit_table(result))
    say(
        "Numbers are effects in standard deviations of one measurement; 3 or more is detected. "
        "+: desideratum met."
    )
    for number, sentence in enumerate(desiderata.DESIDERATA, 1):
        say(f"D{number} {sentence}")
    for name, reason in result.skipped.items():
        say(f"{name} was left out: {reason}")


def scores_table(scores: "Scores") -> Table:
    """A table of all scores."""
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


def audit_table(audit: "Audit") -> Table:
    """A table of the corruptions that each measure detects."""
    from allometry.measure.desiderata import EXPERIMENTS

    table = Table(box=None, pad_edge=False)
    table.add_column("measure")
    heads = [*EXPERIMENTS, "ranking", "s", *(f"D{i}" for i in range(1, 8))]
    for head in heads:
        table.add_column(head, justify="right")
    for v in audit.verdicts:
        effects = [_effect(v.effects.get(name)) for name in EXPERIMENTS]
        marks = ["+" if m == 1 else "-" if m == 0 else "±" for m in v.meets]
        ranking = "" if math.isnan(v.ranking) else f"{v.ranking:.2f}"
        table.add_row(v.name, *effects, ranking, f"{v.seconds:.2f}", *marks)
    return table


def _effect(value: float | None) -> str:
    return "" if value is None else f"{max(-99.0, min(99.0, value)):.1f}"
