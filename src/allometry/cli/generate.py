"""`allometry generate`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from allometry._core.reading import parse_json, read_text
from allometry.cli.output import out, say, write_json

if TYPE_CHECKING:
    from allometry.study import Saved

_COLOURS = ((1.0, "green"), (2.5, "yellow"), (4.5, "dark_orange"), (float("inf"), "red"))


def generate(
    model: Annotated[
        Path, typer.Argument(help="A model's .safetensors file, or a study's folder: its best.")
    ],
    prompt: Annotated[str, typer.Option(help="What to go on from.")] = "\n",
    n: Annotated[int, typer.Option("--n", help="Tokens to generate.")] = 400,
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
    """Generate text from a model, shown as it is drawn.

    Strategies are applied in the order of the options above.
    """
    from allometry.report.units import aside
    from allometry.study import Generation, likeliest, load

    saved = load(model)
    if compare is not None:
        _compare(compare, saved, prompt, n, seed, json)
        return
    if beam is not None:
        found = likeliest(saved, prompt, n=n, width=beam)
        write_json(found) if json else out.print(found[0]["text"], markup=False, soft_wrap=True)
        return
    wanted = {"repetition": repetition, "temperature": None if temperature == 1 else temperature}
    wanted |= {"top_k": top_k, "top_p": top_p, "min_p": min_p, "typical": typical, "eta": eta}
    steps = _strategy(saved, wanted | {"mirostat": mirostat}, regex, lark, schema)
    going = Generation(saved, prompt, steps, n=n, seed=seed, stop=stop or ())
    for piece in going:
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


def _compare(path: Path, saved: "Saved", prompt: str, n: int, seed: int, json: bool) -> None:
    from allometry.report.decoders import decoders

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
    saved: "Saved",
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
