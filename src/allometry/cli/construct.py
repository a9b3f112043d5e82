"""`allometry construct`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from allometry.cli.console import out, say, write_json
from allometry.cli.help_examples import epilog

app = typer.Typer(
    help="Build a network whose weights come from a proof, with its certificate.",
    epilog=epilog("construct"),
    no_args_is_help=True,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Save = Annotated[
    Path | None,
    typer.Option(help="Write the network: .safetensors, .onnx, or a folder for transformers."),
]
Page = Annotated[
    Path | None, typer.Option(help="Write an HTML page that steps through the layers.")
]
Json = Annotated[bool, typer.Option("--json", help="Print as JSON.")]
Seconds = Annotated[float, typer.Option(help="How long to check it.")]


@app.command("universal", epilog=epilog("construct universal"))
def universal(
    function: Annotated[
        str,
        typer.Argument(
            help="mean, maximum, centred, pairwise_products, attention, ranks, sort, reverse, "
            "running_mean, shift, or FILE.py:function."
        ),
    ],
    d: Annotated[int, typer.Option("--d", help="Size of a token.")] = 1,
    n: Annotated[int, typer.Option("--n", help="Number of tokens.")] = 2,
    delta: Annotated[
        float | None, typer.Option(help="Size of a cell, a power of 1/2. Default: 0.25.")
    ] = None,
    eps: Annotated[float | None, typer.Option(help="Wanted error, instead of --delta.")] = None,
    p: Annotated[float, typer.Option("--p", help="Exponent of the error.")] = 2.0,
    positions: Annotated[
        bool | None,
        typer.Option(
            "--positions/--no-positions",
            help="Add a positional encoding. Default: where the named function needs one.",
        ),
    ] = None,
    compact: Annotated[bool, typer.Option("--compact", help="Two wide blocks.")] = False,
    save: Save = None,
    picture: Annotated[Path | None, typer.Option(help="Draw the output against f (SVG).")] = None,
    json: Json = False,
) -> None:
    """The transformer of the universality theorem for a function, and how near it comes."""
    from allometry import construct
    from allometry.construct.sequence_functions import named
    from allometry.targets.functions import ORDERED

    f = named(function)
    delta = 0.25 if delta is None and eps is None else delta
    positions = function in ORDERED if positions is None else positions
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
        say(f"Weights: {construct.export(made, save)}")
    if picture is not None:
        from allometry.report.construction_figures import draw

        say(f"Picture: {draw(picture, made)}")


@app.command("dyck", epilog=epilog("construct dyck"))
def dyck(
    word: Annotated[str | None, typer.Argument(help="Brackets to judge, such as '([])'.")] = None,
    k: Annotated[int, typer.Option("--k", help="Types of brackets.")] = 2,
    depth: Annotated[int, typer.Option("--depth", help="D, how deep they may nest.")] = 3,
    n: Annotated[int, typer.Option("--n", help="Symbols of the longest word.")] = 16,
    mode: Annotated[str, typer.Option(help="recognise or generate.")] = "recognise",
    form: Annotated[str, typer.Option(help="layered (D + 1 layers) or compact (3).")] = "layered",
    seconds: Seconds = 2.0,
    save: Save = None,
    page: Page = None,
    json: Json = False,
) -> None:
    """A recogniser or generator of well-nested brackets, checked against the language."""
    from allometry import construct

    made = construct.dyck(k, depth, n, mode, form=form)
    answer: dict[str, Any] = {}
    if isinstance(made, construct.DyckRecogniser):
        if word is not None:
            answer = {"verdict": made(word), "prefixes": made.prefixes(word)}
            answer |= {"where": made.where(word), "partners": made.partners(word)}
        answer["certificate"] = made.verify(seconds)
    else:
        law = made(word or "").tolist()
        answer = {"next": dict(zip([*made.language.alphabet, "end"], law, strict=True))}
    _tell(made, answer, word or "", save, page, json)


@app.command("turing", epilog=epilog("construct turing"))
def turing(
    machine: Annotated[
        str, typer.Argument(help="A busy-beaver string such as 1RB1LB_1LA1RZ, or a file.")
    ],
    tape: Annotated[str, typer.Argument(help="Symbols from cell 0 on.")] = "",
    steps: Annotated[int, typer.Option(help="T.")] = 100,
    mode: Annotated[str, typer.Option(help="depth, looped or autoregressive.")] = "looped",
    save: Save = None,
    page: Page = None,
    json: Json = False,
) -> None:
    """A network that runs a Turing machine, checked against the simulator step by step."""
    from allometry import construct
    from allometry.targets import TuringMachine

    file = Path(machine)
    parsed = TuringMachine.from_file(file) if file.suffix else TuringMachine.parse(machine)
    made = construct.turing(parsed, steps=steps, mode=mode)
    end = made(tape)
    answer = {"state": end.state, "head": end.head, "halted": end.halted, "steps": end.step}
    answer |= {"tape": end.text(), "certificate": made.certificate}
    _tell(made, answer, tape, save, page, json)


@app.command("program", epilog=epilog("construct program"))
def program(
    name: Annotated[
        str, typer.Argument(help="A name in the library (sort, ...) or FILE.py:function.")
    ],
    tokens: Annotated[str | None, typer.Argument(help="An input, a letter a token.")] = None,
    alphabet: Annotated[str, typer.Option(help="The letters.")] = "abc",
    n: Annotated[int, typer.Option("--n", help="Tokens of the longest input.")] = 8,
    seconds: Seconds = 2.0,
    save: Save = None,
    page: Page = None,
    json: Json = False,
) -> None:
    """A program of sequence operators compiled to weights, checked against the interpreter."""
    from allometry import construct
    from allometry.construct.programs import library

    made = construct.program(library.named(name), alphabet=alphabet, n=n)
    answer: dict[str, Any] = {} if tokens is None else {"output": list(map(str, made(tokens)))}
    answer["certificate"] = made.verify(seconds)
    _tell(made, answer, tokens or alphabet[:n], save, page, json)


def _tell(
    made: Any, answer: dict[str, Any], word: str, save: Path | None, page: Path | None, json: bool
) -> None:
    """Print the answer and the certificate; write what was asked for."""
    from allometry.construct import export
    from allometry.report.layer_steps import steps

    proof = answer.get("certificate")
    if json:
        write_json(answer | ({"certificate": proof.to_dict()} if proof is not None else {}))
    else:
        for key, value in answer.items():
            out.print(str(value) if key == "certificate" else f"{key:<16} {value}", markup=False)
    if save is not None:
        say(f"Network: {export(made, save)}")
    if page is not None:
        say(f"Page: {steps(page, made, word)}")
