"""`allometry generate`."""

from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from allometry._core.errors import require
from allometry._core.files import atomic_write
from allometry._core.user_files import parse_json, read_text
from allometry.cli import option_types
from allometry.cli.console import out, say, write_json

if TYPE_CHECKING:
    from allometry.study import SavedModel
    from allometry.study.sample_generation import ChosenModel

_COLOURS = ((1.0, "green"), (2.5, "yellow"), (4.5, "dark_orange"), (float("inf"), "red"))


def generate(
    model: Annotated[
        Path, typer.Argument(help="A model's .safetensors file, or a study's folder: its best.")
    ],
    family: Annotated[
        str | None, typer.Option(help="Of a study's folder: the best of this family.")
    ] = None,
    size: Annotated[
        float | None,
        typer.Option(
            parser=option_types.size, help="Of a study's folder: the model nearest to this size."
        ),
    ] = None,
    prompt: Annotated[str, typer.Option(help="What to go on from.")] = "\n",
    n: Annotated[int, typer.Option("--n", help="Tokens, or samples, to generate.")] = 400,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Where samples of points or images go: a .npy file, or .png for a picture. "
            "Default: samples.npy.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the sampling.")] = 0,
    repetition: Annotated[
        float | None, typer.Option(help="Above 1: what was said becomes rarer.")
    ] = None,
    temperature: Annotated[float, typer.Option(help="0 is greedy, 1 the model itself.")] = 1.0,
    top_k: Annotated[int | None, typer.Option(help="Keep the k likeliest.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Keep the likeliest of mass p.")] = None,
    min_p: Annotated[
        float | None, typer.Option(help="Keep what is p times as likely as the likeliest.")
    ] = None,
    typical: Annotated[float | None, typer.Option(help="Keep mass p nearest the entropy.")] = None,
    eta: Annotated[float | None, typer.Option(help="Eta sampling.")] = None,
    mirostat: Annotated[
        float | None, typer.Option(help="Steer to this many bits of surprise a token.")
    ] = None,
    regex: Annotated[str | None, typer.Option(help="The text must match this.")] = None,
    lark: Annotated[Path | None, typer.Option(help="File with a Lark grammar.")] = None,
    schema: Annotated[Path | None, typer.Option(help="File with a JSON schema.")] = None,
    beam: Annotated[int | None, typer.Option(help="Beam search of this width.")] = None,
    stop: Annotated[list[str] | None, typer.Option(help="End after this text.")] = None,
    show_surprise: Annotated[
        bool, typer.Option("--show-surprise", help="Colour tokens by their surprise.")
    ] = False,
    compare: Annotated[
        Path | None,
        typer.Option(help="Write a page that puts the usual decoders side by side, and stop."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print text and figures as JSON.")] = False,
) -> None:
    """Generate text, points or images from a model.

    Text is shown as it is drawn; strategies are applied in the order of the options above. Points
    and images are written to a file.
    """
    from allometry.report.likelihood_units import aside
    from allometry.study import Generation, likeliest, load
    from allometry.study.sample_generation import choose

    choice = choose(model, family=family, size=size)
    if not choice.is_text:
        _draw(choice, n, seed, output or Path("samples.npy"), json)
        return
    require(output is None, "output", "be left out with a model of text", str(output))
    saved = load(choice.path)
    who = _introduced(choice)
    if compare is not None:
        _compare(compare, saved, prompt, n, seed, json)
        say(who)
        return
    if beam is not None:
        found = likeliest(saved, prompt, n=n, width=beam)
        say(who)
        write_json(found) if json else out.print(found[0]["text"], markup=False, soft_wrap=True)
        return
    wanted = {"repetition": repetition, "temperature": None if temperature == 1 else temperature}
    wanted |= {"top_k": top_k, "top_p": top_p, "min_p": min_p, "typical": typical, "eta": eta}
    steps = _strategy(saved, wanted | {"mirostat": mirostat}, regex, lark, schema)
    going = Generation(saved, prompt, steps, n=n, seed=seed, stop=stop or ())
    # What can't be generated fails at the first token: then that is all that is said.
    pieces = iter(going)
    first = next(pieces, None)
    say(who)
    for piece in () if first is None else chain([first], pieces):
        if not json:
            colour = next(c for edge, c in _COLOURS if piece.surprise < edge)
            shown = Text(piece.text, style=colour if show_surprise else "")
            out.print(shown, end="", soft_wrap=True)
    figures = going.describe()
    if json:
        write_json(figures)
        return
    out.print()
    if figures["tokens"]:
        more = aside(figures["surprise"], saved.unit)
        say(
            f"{figures['tokens']} tokens, {figures['surprise']:.3f} {saved.unit}"
            f"{f' ({more})' if more else ''} under the model, "
            f"{100 * figures['repetition']:.0f} % of 4-grams repeated."
        )


def _introduced(choice: "ChosenModel") -> str:
    """Which model speaks."""
    from allometry.report import formatting as fmt

    name = fmt.family(choice.family) if choice.family else "Model"
    if choice.N is None or choice.loss is None:
        return f"{name} in {choice.path}"
    which = f", of {choice.among} saved models" if choice.among > 1 else ""
    unit = f" {choice.unit}" if choice.unit else ""
    size = f"{fmt.count(choice.N)} parameters"
    return f"{name}, {size}, loss {fmt.loss(choice.loss)}{unit}{which}: {choice.path.name}"


def _draw(choice: "ChosenModel", n: int, seed: int, path: Path, json: bool) -> None:
    """Write samples of a model of points or images."""
    import numpy as np

    from allometry.report.sample_grid import write_sheet
    from allometry.study.sample_generation import draw

    kinds = (".npy", ".png")
    require(path.suffix in kinds, "output", "end in .npy or .png", str(path))
    drawn = draw(choice, n, seed)
    say(_introduced(choice))
    if path.suffix == ".png":
        write_sheet(path, drawn.values, drawn.levels)
    else:
        with atomic_write(path, "wb") as file:
            np.save(file, drawn.values, allow_pickle=False)
    if json:
        write_json({"output": str(path), "shape": list(drawn.values.shape)})
    shape = " x ".join(map(str, drawn.values.shape))
    say(f"Samples: {path} ({shape})")


def _compare(path: Path, saved: "SavedModel", prompt: str, n: int, seed: int, json: bool) -> None:
    from allometry.report.decoder_table import decoders

    found = decoders(path, saved, prompt, n=n, seed=seed)
    if json:
        write_json({one.name: one.texture._asdict() for one in found})
        return
    for one in found:
        t = one.texture
        out.print(
            f"{one.name:16s} {t.surprise:6.3f} {saved.unit}, {100 * t.repetition:3.0f} % repeated",
            markup=False,
            highlight=False,
        )
    say(f"Page: {path}")


def _strategy(
    saved: "SavedModel",
    wanted: dict[str, Any],
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
    return [*steps, *(getattr(decode, k)(v) for k, v in wanted.items() if v is not None)]
