"""`allometry generate`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from allometry._core.errors import require
from allometry._core.files import atomic_write
from allometry._core.user_files import parse_json, read_text
from allometry.cli import option_types
from allometry.cli.console import counted, out, say, write_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from allometry.study import GeneratedText, Generation, SavedModel
    from allometry.study.sample_generation import ChosenModel

_COLOURS = ((1.0, "green"), (2.5, "yellow"), (4.5, "dark_orange"), (float("inf"), "red"))


def generate(
    model: Annotated[
        Path,
        typer.Argument(
            help="A model's .safetensors file, or a study's folder, whose best model is used."
        ),
    ],
    family: Annotated[
        str | None, typer.Option(help="Use the best model of this family in the folder.")
    ] = None,
    size: Annotated[
        float | None,
        typer.Option(
            parser=option_types.size, help="Use the model nearest to this size in the folder."
        ),
    ] = None,
    prompt: Annotated[str, typer.Option(help="Text to continue.")] = "\n",
    n: Annotated[
        int,
        typer.Option(
            "--n", max=option_types.LARGEST_COUNT, help="Number of tokens or samples to generate."
        ),
    ] = 400,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="File for samples of points or images: .npy for numbers, .png for a picture. "
            "Default: samples.npy.",
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=option_types.LARGEST_SEED, help="Seed of the sampling.")
    ] = 0,
    repetition: Annotated[
        float | None, typer.Option(help="Repetition penalty; above 1, repeated tokens are rarer.")
    ] = None,
    temperature: Annotated[
        float, typer.Option(help="Softmax temperature; 0 is greedy, 1 samples from the model.")
    ] = 1.0,
    top_k: Annotated[
        int | None,
        typer.Option(max=option_types.LARGEST_COUNT, help="Sample from the k likeliest tokens."),
    ] = None,
    top_p: Annotated[
        float | None, typer.Option(help="Sample from the nucleus of probability p.")
    ] = None,
    min_p: Annotated[
        float | None,
        typer.Option(help="Sample from tokens at least p times as likely as the likeliest."),
    ] = None,
    typical: Annotated[
        float | None, typer.Option(help="Locally typical sampling with probability mass p.")
    ] = None,
    eta: Annotated[
        float | None, typer.Option(help="Eta sampling with this probability cutoff.")
    ] = None,
    mirostat: Annotated[
        float | None, typer.Option(help="Mirostat with this target surprisal in bits per token.")
    ] = None,
    regex: Annotated[
        str | None, typer.Option(help="Regular expression that the text must match.")
    ] = None,
    lark: Annotated[
        Path | None, typer.Option(help="File with a Lark grammar that the text must follow.")
    ] = None,
    schema: Annotated[
        Path | None, typer.Option(help="File with a JSON schema that the text must follow.")
    ] = None,
    beam: Annotated[
        int | None,
        typer.Option(max=option_types.LARGEST_COUNT, help="Use beam search of this width."),
    ] = None,
    stop: Annotated[
        list[str] | None,
        typer.Option(help="End after this text. Repeat the option for several."),
    ] = None,
    show_surprise: Annotated[
        bool, typer.Option("--show-surprise", help="Colour tokens by their surprisal.")
    ] = False,
    compare: Annotated[
        Path | None,
        typer.Option(help="Only write an HTML page that compares the common decoders."),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the text and its statistics as JSON.")
    ] = False,
) -> None:
    """Generate text, points or images from a model.

    Text is printed while it is sampled; strategies apply in the order of the options above. Points
    and images are written to a file.
    """
    from allometry.study import Generation, likeliest, load
    from allometry.study.sample_generation import choose

    choice = choose(model, family=family, size=size)
    if not choice.is_text:
        _write_samples(choice, n, seed, output or Path("samples.npy"), json)
        return
    require(output is None, "output", "be left out with a model of text", str(output))
    saved = load(choice.path)
    if compare is not None:
        _compare(compare, saved, prompt, n, seed, json)
        say(_introduction(choice))
        return
    if beam is not None:
        beams = likeliest(saved, prompt, n=n, width=beam)
        say(_introduction(choice))
        write_json(beams) if json else out.print(beams[0]["text"], markup=False, soft_wrap=True)
        return
    options = {"repetition": repetition, "temperature": None if temperature == 1 else temperature}
    options |= {"top_k": top_k, "top_p": top_p, "min_p": min_p, "typical": typical, "eta": eta}
    steps = _strategies(saved, options | {"mirostat": mirostat}, regex, lark, schema)
    generation = Generation(saved, prompt, steps, n=n, seed=seed, stop=stop or ())
    # A constraint may turn out impossible at any token; then the error is the only output.
    constrained = any(option is not None for option in (regex, lark, schema))
    pieces = iter(list(generation)) if constrained else iter(generation)
    _print_text(generation, pieces, _introduction(choice), saved.unit, show_surprise, json)


def _print_text(
    generation: "Generation",
    pieces: "Iterator[GeneratedText]",
    introduction: str,
    unit: str,
    show_surprise: bool,
    json: bool,
) -> None:
    """Print a text while it is sampled, then its statistics."""
    from allometry.report.likelihood_units import aside

    for piece in pieces:
        if not json:
            colour = next(c for edge, c in _COLOURS if piece.surprise < edge)
            text = Text(piece.text, style=colour if show_surprise else "")
            out.print(text, end="", soft_wrap=True)
    figures = generation.describe()
    if json:
        write_json(figures)
        say(introduction)
        return
    out.print()
    # After the text: a model that fails at some token gives the error as its only message.
    say(introduction)
    if figures["tokens"]:
        other_units = aside(figures["surprise"], unit)
        say(
            f"{counted(figures['tokens'], 'token')}, {figures['surprise']:.3f} {unit}"
            f"{f' ({other_units})' if other_units else ''} under the model, "
            f"{100 * figures['repetition']:.0f} % of 4-grams repeated."
        )


def _introduction(choice: "ChosenModel") -> str:
    """A line on the model that generates."""
    from allometry.report import formatting as fmt

    name = fmt.family(choice.family) if choice.family else "Model"
    if choice.N is None or choice.loss is None:
        return f"{name} in {choice.path}"
    among = f", of {choice.among} saved models" if choice.among > 1 else ""
    unit = f" {choice.unit}" if choice.unit else ""
    size = f"{fmt.count(choice.N)} parameters"
    return f"{name}, {size}, loss {fmt.loss(choice.loss)}{unit}{among}: {choice.path.name}"


def _write_samples(choice: "ChosenModel", n: int, seed: int, path: Path, json: bool) -> None:
    """Write samples of a model of points or images."""
    import numpy as np

    from allometry.report.sample_grid import write_sheet
    from allometry.study.sample_generation import draw

    kinds = (".npy", ".png")
    require(path.suffix in kinds, "output", "end in .npy or .png", str(path))
    samples = draw(choice, n, seed)
    say(_introduction(choice))
    if path.suffix == ".png":
        write_sheet(path, samples.values, samples.levels)
    else:
        with atomic_write(path, "wb") as file:
            np.save(file, samples.values, allow_pickle=False)
    if json:
        write_json({"output": str(path), "shape": list(samples.values.shape)})
    shape = " x ".join(map(str, samples.values.shape))
    say(f"Samples: {path} ({shape})")


def _compare(path: Path, saved: "SavedModel", prompt: str, n: int, seed: int, json: bool) -> None:
    from allometry.report.decoder_table import decoders

    results = decoders(path, saved, prompt, n=n, seed=seed)
    if json:
        write_json({each.name: each.texture._asdict() for each in results})
        return
    for each in results:
        t = each.texture
        repeated = f"{100 * t.repetition:3.0f} % repeated"
        out.print(
            f"{each.name:16s} {t.surprise:6.3f} {saved.unit}, {repeated}",
            markup=False,
            highlight=False,
        )
    say(f"Page: {path}")


def _strategies(
    saved: "SavedModel",
    options: dict[str, Any],
    regex: str | None,
    lark: Path | None,
    schema: Path | None,
) -> list[Any]:
    from allometry import decode

    steps = []
    tokens = saved.vocabulary.token_bytes()
    if regex is not None:
        steps.append(decode.constrained(decode.regex(regex, tokens)))
    for path, make in ((lark, decode.lark), (schema, decode.json_schema)):
        if path is not None:
            text = read_text(path)
            source: Any = parse_json(text, str(path)) if make is decode.json_schema else text
            steps.append(decode.constrained(make(source, tokens)))
    return [*steps, *(getattr(decode, k)(v) for k, v in options.items() if v is not None)]
