"""Charts of constructed networks: quantisation, ids of columns, output against the target.

All are Vega-Lite specifications as plain mappings; `theme.svg` renders them.
"""

import math
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from allometry._core.files import atomic_write
from allometry.construct import (
    Certificate,
    Construction,
    DyckRecogniser,
    Generator,
    Program,
    UniversalConstruction,
)
from allometry.construct.modified_layers import apply
from allometry.construct.proof_stages import encoding, reader
from allometry.report import formatting as fmt
from allometry.report import theme
from allometry.report.theme import LIGHT, Spec, layer


def quantised(made: UniversalConstruction, width: int = 720) -> Spec:
    """The first stages: an entry of the first column before and after clamping and quantising.

    Args:
        made: A construction by `construct.universal`.
        width: Width in pixels.
    """
    x = torch.linspace(-0.2, 1.2, 1401, dtype=torch.float64)
    columns = torch.full((len(x), made.d, made.n), 0.5, dtype=torch.float64)
    columns[:, 0, 0] = x
    columns = columns + encoding(made.d, made.n) if made.positions else columns
    y = apply([*made.stages["clamp"], *made.stages["quantise"]], columns)[:, 0, 0]
    data = pd.DataFrame({"x": x, "y": y})
    look = {"color": LIGHT["c1"], "strokeWidth": 2, "interpolate": "step-after"}
    lines = [
        layer(data, "line", {"color": LIGHT["muted"], "strokeDash": [4, 3]}, x="x", y="x"),
        layer(data, "line", look, x=_axis("x", "Entry of the input"), y=_axis("y", None)),
    ]
    return theme.styled(lines, "After clamping and quantising", width, round(width * 0.42))


def codes(made: UniversalConstruction, sequence: torch.Tensor, width: int = 720) -> Spec:
    r"""The ids $u^T X_j$ of each column before and after every shift of the contextual mapping.

    Args:
        made: A construction by `construct.universal`.
        sequence: One input, (d, n).
        width: Width in pixels.
    """
    x = sequence.double()[None]
    x = x + encoding(made.d, made.n) if made.positions else x
    x = apply([*made.stages["clamp"], *made.stages["quantise"]], x)
    u, rows = reader(made.d, made.delta), []
    for step, shift in enumerate([None, *made.stages["contextual"]]):
        x = x if shift is None else shift(x)
        for j, code in enumerate(torch.einsum("d,bdn->bn", u, x)[0].tolist()):
            # A logarithmic axis has no 0; a tenth of the unit stands for an id of 0.
            shown = max(code, made.delta / 10)
            tooltip = f"column {j + 1} after {step} shifts: {code:g}"
            rows.append(
                {"step": step, "code": shown, "column": f"column {j + 1}", "tooltip": tooltip}
            )
    data = pd.DataFrame(rows)
    hues = [LIGHT[c] for c in (*theme.FAMILY_COLOURS, theme.COUNT_COLOUR)]
    names = [f"column {j + 1}" for j in range(made.n)]
    colour = {
        "field": "column",
        "type": "nominal",
        "scale": {"domain": names, "range": [hues[j % len(hues)] for j in range(made.n)]},
        "legend": {"title": None},
    }
    low, high = theme.extent(data["code"])
    y = theme.log_axis("code", low, high, _power, None)
    look = {"strokeWidth": 2, "interpolate": "step-after"}
    title = "Shifts applied (one per id, then the global one)"
    line = layer(data, "line", look, x=_axis("step", title), y=y, color=colour)
    dots = layer(
        data, "point", {"filled": True, "size": 28}, x="step", y=y, color=colour, tooltip="tooltip"
    )
    return theme.styled([line, dots], "Id of each column", width, round(width * 0.5))


def output(made: Construction, width: int = 720) -> Spec:
    """Output and target along a line through the cube.

    The first entry of the first column goes from 0 to 1; all others are fixed.

    Args:
        made: A construction by `construct.universal` or `construct.compact`.
        width: Width in pixels.
    """
    x = torch.linspace(0, 1, 801, dtype=torch.float64)
    rest = (torch.arange(made.d * made.n, dtype=torch.float64) * 0.381966 + 0.3) % 1
    columns = rest.reshape(made.d, made.n).repeat(len(x), 1, 1)
    columns[:, 0, 0] = x
    frame = pd.DataFrame({"x": x, "f": made.f(columns)[:, 0, 0], "g": made(columns)[:, 0, 0]})
    data = frame.melt("x", var_name="which", value_name="y")
    data["which"] = data["which"].map({"f": "target", "g": "network"})
    colour = {
        "field": "which",
        "type": "nominal",
        "scale": {"domain": ["target", "network"], "range": [LIGHT["c2"], LIGHT["c1"]]},
        "legend": {"title": None},
    }
    dash = {
        "field": "which",
        "type": "nominal",
        "scale": {"domain": ["target", "network"], "range": [[6, 3], [1, 0]]},
        "legend": {"title": None},
    }
    line = layer(
        *(data, "line", {"strokeWidth": 2}),
        x=_axis("x", "First entry of the first column"),
        y=_axis("y", None),
        color=colour,
        strokeDash=dash,
    )
    return theme.styled([line], "First entry of the output", width, round(width * 0.45))


def sizes(certificates: dict[str, list[Certificate]], width: int = 720) -> Spec:
    """Error against nonzero parameters, one line per construction.

    Args:
        certificates: Certificates by name, in order of size.
        width: Width in pixels.
    """
    rows = [
        {
            "name": name,
            "N": c.nonzero,
            "error": c.d_p.value,
            "tooltip": f"{name}: {c.blocks:,} blocks, {c.nonzero:,} parameters, error {c.d_p}",
        }
        for name, many in certificates.items()
        for c in many
    ]
    data = pd.DataFrame(rows)
    x = theme.log_axis("N", *theme.extent(data["N"]), fmt.count, "Nonzero parameters")
    y = theme.log_axis("error", *theme.extent(data["error"]), fmt.significant, None)
    names = list(certificates)
    hues = [LIGHT[theme.FAMILY_COLOURS[i % 5]] for i in range(len(names))]
    colour = {
        "field": "name",
        "type": "nominal",
        "scale": {"domain": names, "range": hues},
        "legend": {"title": None},
    }
    shape = {
        "field": "name",
        "type": "nominal",
        "scale": {"domain": names, "range": list(theme.SHAPES[: len(names)])},
        "legend": {"title": None},
    }
    dots = {"filled": True, "size": 70}
    marks = [
        layer(data, "line", {"strokeWidth": 1.5}, x=x, y=y, color=colour),
        layer(data, "point", dots, x=x, y=y, color=colour, shape=shape, tooltip="tooltip"),
    ]
    return theme.styled(marks, "Error d_p", width, round(width * 0.5))


def draw(path: Path | str, made: Construction, width: int = 720) -> Path:
    """Save the chart of `output` as SVG.

    Args:
        path: The file.
        made: A construction by `construct.universal` or `construct.compact`.
        width: Width in pixels.
    """
    with atomic_write(path) as file:
        file.write(theme.on_paper(theme.svg(output(made, width))))
    return Path(path)


def _axis(field: str, title: str | None) -> Spec:
    return {"field": field, "type": "quantitative", "axis": {"title": title, "tickCount": 6}}


def _power(x: float) -> str:
    superscript = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    return "10" + str(round(math.log10(x))).translate(superscript) if x >= 1000 else f"{x:g}"


def matches(made: DyckRecogniser, word: str, width: int = 720) -> Spec:
    """An arc from every closing bracket to the one its head attends to, coloured by layer.

    Args:
        made: A recogniser of either form.
        word: Brackets.
        width: Width in pixels.
    """
    ids = made.language.ids(word)
    maps, partners = made.attention(word), made.partners(word)
    rows = []
    for i, j in enumerate(partners):
        if j is None or j > i:
            continue
        # Slot 0 is the start symbol, so a bracket's slot is its position plus one.
        layers = (k for k, heads in enumerate(maps) if int(heads[0, i + 1].argmax()) == j + 1)
        found = f"layer {next(layers) + 1}"
        for step in range(25):
            angle = math.pi * step / 24
            x = (i + j) / 2 - (i - j) / 2 * math.cos(angle)
            rows.append({"x": x, "y": (i - j) / 2 * math.sin(angle), "layer": found, "arc": i})
    arcs = pd.DataFrame(rows, columns=["x", "y", "layer", "arc"])
    symbols = pd.DataFrame(
        {"x": range(len(ids)), "y": 0.0, "text": [made.language.alphabet[i] for i in ids]}
    )
    names = sorted(arcs["layer"].unique())
    colour = {
        "field": "layer",
        "type": "nominal",
        "scale": {
            "domain": names,
            "range": [LIGHT[theme.FAMILY_COLOURS[i % 5]] for i in range(len(names))],
        },
        "legend": {"title": None},
    }
    bare = {"type": "quantitative", "axis": None}
    text = {"fontSize": 18, "dy": 16, "color": LIGHT["ink"]}
    x = bare | {"field": "x", "scale": {"domain": [-0.6, len(ids) - 0.4]}}
    top = max(1.0, arcs["y"].max() if len(arcs) else 1.0)
    y = bare | {"field": "y", "scale": {"domain": [-0.22 * top, 1.08 * top]}}
    marks = [
        layer(arcs, "line", {"strokeWidth": 2}, x=x, y=y, color=colour, detail="arc"),
        layer(symbols, "text", text, x=x, y=y, text="text"),
    ]
    return theme.styled(marks, "Attention of closing brackets", width, round(width * 0.3))


def repetitions(made: Program, word: str, width: int = 720) -> Spec:
    """The output at every position after each repetition of a loop by depth.

    Args:
        made: A program that is one `loop`.
        word: The input.
        width: Width in pixels.
    """
    model, read = made.model, made.readouts[0]
    assert model.readout is not None
    assert model.readout_bias is not None
    states = model.states(made.ids([word]))[:: len(model.blocks), 0, 1:]
    rows, _ = read.read(states @ model.readout.detach().T + model.readout_bias.detach())
    data = pd.DataFrame(
        [
            {"x": f"{i}:{word[i]}", "y": step, "text": str(value), "right": value == rows[-1][i]}
            for step, row in enumerate(rows)
            for i, value in enumerate(row)
        ]
    )
    places = [f"{i}:{token}" for i, token in enumerate(word)]
    marks = _tiles(data, places, list(range(len(rows))), "Repetitions", _shade("right"))
    return theme.styled(marks, "Output at each position", width, 26 * len(rows) + 60)


def looks(made: Generator, prompt: str, width: int = 720) -> Spec:
    """Where each head looks while a program writes its first token.

    Args:
        made: A program that generates.
        prompt: Its prompt.
        width: Width in pixels.
    """
    rows, names = [], []
    places = [f"{i}:{token}" for i, token in enumerate(prompt.replace("\n", "↵"))]
    for block, heads in enumerate(made.attention(prompt)):
        for head, weights in enumerate(() if heads is None else heads[:, -1, 1:]):
            if float(weights.sum()) < 1e-6:
                continue  # the head selects nothing and attends to the start token
            names.append(f"layer {block + 1}, head {head + 1}")
            for place, weight in zip(places, weights.tolist(), strict=True):
                rows.append({"x": place, "y": names[-1], "text": "", "weight": weight})
    colour = {
        "field": "weight",
        "type": "quantitative",
        "scale": {"domain": [0, 1], "range": [LIGHT["rule"], LIGHT["c1"]]},
        "legend": None,
    }
    marks = _tiles(pd.DataFrame(rows), places, names, None, colour)
    return theme.styled(marks, "Attention of the last position", width, 26 * len(names) + 40)


def _tiles(
    data: pd.DataFrame, places: list[str], rows: list[Any], title: str | None, colour: Spec
) -> list[Spec]:
    """A tile for each position and row; a place is its index and its token."""
    label = "replace(datum.label, /^[0-9]+:/, '')"
    axis = {"title": None, "labelExpr": label, "labelAngle": 0, "labelFontSize": 14}
    x = {"field": "x", "type": "ordinal", "scale": {"domain": places}, "axis": axis}
    y = {"field": "y", "type": "ordinal", "scale": {"domain": rows}, "axis": {"title": title}}
    edge = {"stroke": LIGHT["paper"], "strokeWidth": 2}
    ink = {"fontSize": 14, "color": LIGHT["ink"]}
    return [
        layer(data, "rect", edge, x=x, y=y, color=colour),
        layer(data, "text", ink, x=x, y=y, text="text"),
    ]


def _shade(field: str) -> Spec:
    scale = {"domain": [False, True], "range": [LIGHT["rule"], LIGHT["s1"]]}
    return {"field": field, "type": "nominal", "scale": scale, "legend": None}
