"""`allometry construct`."""

from pathlib import Path
from typing import Annotated

import typer

from allometry.cli.output import out, say, write_json

app = typer.Typer(
    help="Build a network whose weights come from a proof, with its certificate.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command("universal")
def universal(
    function: Annotated[
        str,
        typer.Argument(help="A name in targets.functions (mean, sort, ...) or FILE.py:function."),
    ],
    d: Annotated[int, typer.Option("--d", help="Size of a token.")] = 1,
    n: Annotated[int, typer.Option("--n", help="Number of tokens.")] = 2,
    delta: Annotated[float | None, typer.Option(help="Size of a cell.")] = None,
    eps: Annotated[float | None, typer.Option(help="Wanted error, instead of delta.")] = None,
    p: Annotated[float, typer.Option("--p", help="Exponent of the error.")] = 2.0,
    positions: Annotated[bool, typer.Option("--positions", help="Add positions.")] = False,
    compact: Annotated[bool, typer.Option("--compact", help="Two wide blocks.")] = False,
    save: Annotated[Path | None, typer.Option(help="Write the weights (safetensors).")] = None,
    picture: Annotated[Path | None, typer.Option(help="Draw the output against f (SVG).")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the certificate as JSON.")] = False,
) -> None:
    """The transformer of the universality theorem for a function, and how near it comes."""
    from allometry import construct
    from allometry.construct.sequences import named

    f = named(function)
    made = (
        construct.compact(f, d, n, delta, eps=eps, p=p, positions=positions)
        if compact
        else construct.universal(f, d, n, delta, eps=eps, p=p, positions=positions)
    )
    if json:
        write_json(made.certificate.to_dict())
    else:
        out.print(str(made.certificate), markup=False)
    if save is not None:
        say(f"Weights: {made.save(save)}")
    if picture is not None:
        from allometry.report.construction import draw

        say(f"Picture: {draw(picture, made)}")
