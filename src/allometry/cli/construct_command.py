"""`allometry construct`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from allometry.cli import option_types
from allometry.cli.console import out, say, write_json
from allometry.cli.help_examples import epilog

app = typer.Typer(
    help="Build a network with weights from a proof, and its certificate.",
    epilog=epilog("construct"),
    no_args_is_help=True,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Save = Annotated[
    Path | None,
    typer.Option(
        help="Write the network to a .safetensors, .onnx or .gguf file, or to a folder for "
        "Hugging Face transformers."
    ),
]
To = Annotated[
    str | None,
    typer.Option(
        help="Format of --save: safetensors, onnx, gguf, hf or transformer-lens. Default: by the "
        "file's suffix, hf for a folder."
    ),
]
Architecture = Annotated[
    str | None,
    typer.Option(
        help="Architecture of a causal network for hf or gguf: gpt2 or llama. Default: gpt2."
    ),
]
Page = Annotated[
    Path | None, typer.Option(help="Write an HTML page that steps through the layers.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]
Seconds = Annotated[float, typer.Option(help="Time limit of the verification in seconds.")]


@app.command("universal", epilog=epilog("construct universal"))
def universal(
    function: Annotated[
        str,
        typer.Argument(
            help="The function to approximate: mean, maximum, centred, pairwise_products, "
            "attention, ranks, sort, reverse, running_mean, shift, or FILE.py:function."
        ),
    ],
    d: Annotated[
        int, typer.Option("--d", max=option_types.LARGEST_COUNT, help="Dimension of a token.")
    ] = 1,
    n: Annotated[
        int, typer.Option("--n", max=option_types.LARGEST_COUNT, help="Number of tokens.")
    ] = 2,
    delta: Annotated[
        float | None, typer.Option(help="Side of a grid cell, a power of 1/2. Default: 0.25.")
    ] = None,
    eps: Annotated[
        float | None, typer.Option(help="Error to reach; determines the cell instead of --delta.")
    ] = None,
    p: Annotated[float, typer.Option("--p", help="Exponent of the error's norm.")] = 2.0,
    positions: Annotated[
        bool | None,
        typer.Option(
            "--positions/--no-positions",
            help="Add a positional encoding. Default: only if the named function needs one.",
        ),
    ] = None,
    compact: Annotated[
        bool, typer.Option("--compact", help="Use two wide blocks instead of many narrow ones.")
    ] = False,
    save: Save = None,
    to: To = None,
    picture: Annotated[
        Path | None, typer.Option(help="Plot the output against the function to an SVG file.")
    ] = None,
    json: Json = False,
) -> None:
    """Build the transformer of the universality theorem for a function; measure its error."""
    from allometry import construct
    from allometry.construct.sequence_functions import named
    from allometry.targets.functions import ORDERED

    f = named(function)
    delta = 0.25 if delta is None and eps is None else delta
    positions = function in ORDERED if positions is None else positions
    build = construct.compact if compact else construct.universal
    network = build(f, d, n, delta, eps=eps, p=p, positions=positions)
    # Files come first: if one can't be written, the error is the only output.
    written = []
    if picture is not None:
        from allometry.report.construction_figures import draw

        written.append(f"Picture: {draw(picture, network)}")
    if save is not None:
        written.append(f"Weights: {construct.export(network, save, to)}")
    if json:
        write_json(network.certificate.to_dict())
    else:
        out.print(str(network.certificate), markup=False)
    for line in written:
        say(line)


@app.command("dyck", epilog=epilog("construct dyck"))
def dyck(
    word: Annotated[
        str | None, typer.Argument(help="A string of brackets to classify, such as '([])'.")
    ] = None,
    k: Annotated[
        int, typer.Option("--k", max=option_types.LARGEST_COUNT, help="Number of bracket types.")
    ] = 2,
    depth: Annotated[
        int,
        typer.Option("--depth", max=option_types.LARGEST_COUNT, help="Largest nesting depth D."),
    ] = 3,
    n: Annotated[
        int,
        typer.Option("--n", max=option_types.LARGEST_COUNT, help="Largest length of a string."),
    ] = 16,
    mode: Annotated[
        str, typer.Option(help="Kind of network: recognise or generate.")
    ] = "recognise",
    form: Annotated[
        str, typer.Option(help="Architecture: layered (D + 1 layers) or compact (3 layers).")
    ] = "layered",
    seconds: Seconds = 2.0,
    save: Save = None,
    to: To = None,
    architecture: Architecture = None,
    page: Page = None,
    json: Json = False,
) -> None:
    """Build a recogniser or generator of the Dyck language, verified against the language."""
    from allometry import construct

    network = construct.dyck(k, depth, n, mode, form=form)
    answer: dict[str, Any] = {}
    if isinstance(network, construct.DyckRecogniser):
        if word is not None:
            answer = {"verdict": network(word), "prefixes": network.prefixes(word)}
            answer |= {"where": network.where(word), "partners": network.partners(word)}
        answer["certificate"] = network.verify(seconds)
    else:
        probabilities = network(word or "").tolist()
        symbols = [*network.language.alphabet, "end"]
        answer = {"next": dict(zip(symbols, probabilities, strict=True))}
    _print(network, answer, word or "", (save, to, architecture), page, json)


@app.command("turing", epilog=epilog("construct turing"))
def turing(
    machine: Annotated[
        str,
        typer.Argument(
            help="A machine in standard text format, such as 1RB1LB_1LA1RZ, or a file."
        ),
    ],
    tape: Annotated[str, typer.Argument(help="Symbols on the tape from cell 0 on.")] = "",
    steps: Annotated[
        int, typer.Option(max=option_types.LARGEST_COUNT, help="Number of machine steps T.")
    ] = 100,
    mode: Annotated[
        str, typer.Option(help="How steps are run: depth, looped or autoregressive.")
    ] = "looped",
    save: Save = None,
    to: To = None,
    architecture: Architecture = None,
    page: Page = None,
    json: Json = False,
) -> None:
    """Build a network that runs a Turing machine, verified against a simulator step by step."""
    from allometry import construct
    from allometry.targets import TuringMachine

    file = Path(machine)
    parsed = TuringMachine.from_file(file) if file.suffix else TuringMachine.parse(machine)
    network = construct.turing(parsed, steps=steps, mode=mode)
    end = network(tape)
    answer = {"state": end.state, "head": end.head, "halted": end.halted, "steps": end.step}
    answer |= {"tape": end.text(), "certificate": network.certificate}
    _print(network, answer, tape, (save, to, architecture), page, json)


@app.command("program", epilog=epilog("construct program"))
def program(
    name: Annotated[
        str, typer.Argument(help="A program of the library (sort, ...) or FILE.py:function.")
    ],
    tokens: Annotated[
        str | None, typer.Argument(help="An input for the program; each letter is a token.")
    ] = None,
    alphabet: Annotated[str, typer.Option(help="Letters that may occur in the input.")] = "abc",
    n: Annotated[
        int,
        typer.Option(
            "--n", max=option_types.LARGEST_COUNT, help="Largest length of an input in tokens."
        ),
    ] = 8,
    seconds: Seconds = 2.0,
    save: Save = None,
    to: To = None,
    architecture: Architecture = None,
    page: Page = None,
    json: Json = False,
) -> None:
    """Compile a program of sequence operators to weights, verified against an interpreter."""
    from allometry import construct
    from allometry.construct.programs import library

    network = construct.program(library.named(name), alphabet=alphabet, n=n)
    answer: dict[str, Any] = {}
    if tokens is not None:
        answer["output"] = list(map(str, network(tokens)))
    answer["certificate"] = network.verify(seconds)
    _print(network, answer, tokens or alphabet[:n], (save, to, architecture), page, json)


@app.command("generator", epilog=epilog("construct generator"))
def generator(
    name: Annotated[
        str,
        typer.Argument(
            help="A generator: counter, increment, adder, calculator, long_addition, "
            "long_multiplication, closing, stack_machine, subleq, or FILE.py:function."
        ),
    ],
    prompt: Annotated[
        str | None,
        typer.Argument(
            help="What the network continues, such as 95+27. Tokens of several letters are "
            "separated by spaces."
        ),
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=option_types.LARGEST_COUNT,
            help="Digits of a number (or bits, tokens, instructions, cells). Default: the "
            "generator's own.",
        ),
    ] = None,
    listing: Annotated[
        bool, typer.Option("--listing", help="Print what each head and neuron does.")
    ] = False,
    seconds: Seconds = 2.0,
    save: Save = None,
    to: To = None,
    architecture: Architecture = None,
    page: Page = None,
    json: Json = False,
) -> None:
    """Compile a program that generates text to a decoder, verified against an interpreter."""
    from allometry.construct.programs import named_generators

    network = named_generators.named(name, size)
    tokens = None if prompt is None else named_generators.prompt_of(network, prompt)
    answer: dict[str, Any] = {}
    if tokens is not None:
        answer["output"] = named_generators.text_of(network, network(tokens))
        named_generators.check_prompt(name, size, tokens)
    answer["schedule"] = str(network.schedule)
    if listing:
        answer["listing"] = network.listing
    answer["certificate"] = network.verify(seconds)
    word = tokens or (network.prompts or [network.alphabet[:1]])[0]
    _print(network, answer, word, (save, to, architecture), page, json)


def _print(
    network: Any,
    answer: dict[str, Any],
    word: Any,
    export_to: tuple[Path | None, str | None, str | None],
    page: Path | None,
    json: bool,
) -> None:
    """Print the answer and the certificate; write the requested files.

    Args:
        network: The construction.
        answer: What to print, the certificate under "certificate".
        word: The input that the page shows.
        export_to: File or folder, format and architecture.
        page: The HTML page.
        json: Whether to print JSON.
    """
    from allometry.construct import export
    from allometry.report.layer_steps import steps

    # Files come first: if one can't be written, the error is the only output.
    written = []
    if page is not None:
        written.append(f"Page: {steps(page, network, word)}")
    save, to, architecture = export_to
    if save is not None:
        written.append(f"Network: {export(network, save, to, architecture=architecture)}")
    proof = answer.get("certificate")
    if json:
        write_json(answer | ({"certificate": proof.to_dict()} if proof is not None else {}))
    else:
        for key, value in answer.items():
            whole = key in ("certificate", "listing")
            out.print(str(value) if whole else f"{key:<16} {value}", markup=False)
    for line in written:
        say(line)
