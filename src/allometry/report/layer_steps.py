"""An interactive page that steps through the layers of a constructed network on one input.

Letters: l layers, h heads, n slots, d width.
"""

import json
from dataclasses import asdict, dataclass
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any, Protocol, final, runtime_checkable

import jinja2
import torch
from torch import Tensor

from allometry._core.errors import require
from allometry._core.files import atomic_write, make_folder
from allometry.construct import attention_maps
from allometry.models import Transformer
from allometry.report.page import page_policy, page_style, template

MOST_SLOTS = 64
MOST_LAYERS = 128
KINDS = {
    "DyckRecogniser": "Recogniser of brackets",
    "DyckGenerator": "Generator of brackets",
    "Program": "Program",
    "CellularRun": "Turing machine",
    "AutoregressiveRun": "Turing machine, token by token,",
}


@runtime_checkable
class Shown(Protocol):
    """What a construction offers to be shown: its model and what it reads for an input."""

    @property
    def model(self) -> Transformer:
        """The network."""
        ...

    def slots(self, word: Any, /) -> tuple[Tensor, list[str]]:
        """Token ids (1, n), and what stands in each slot."""
        ...


@final
@dataclass(frozen=True)
class Steps:
    """All that the page shows, as plain values.

    Attributes:
        title: In a few words.
        slots: What stands in each slot.
        names: Of the stream's coordinates.
        states: The stream before the first block and after each, by slot.
        attention: For each block and head the weights, rows looking at columns; none without.
        ends: What comes out.
    """

    title: str
    slots: list[str]
    names: list[str]
    states: list[list[list[float]]]
    attention: list[list[list[list[float]]]]
    ends: str


@torch.no_grad()
def follow(made: Shown, word: Any, title: str | None = None) -> Steps:
    """The stream and every head's attention of a construction on one input.

    Args:
        made: By `construct.dyck`, `construct.turing` or `construct.program`.
        word: Its input.
        title: Of the page; the construction's kind and input unless told.
    """
    tokens, slots = made.slots(word)
    model = made.model
    require(len(slots) <= MOST_SLOTS, "steps.word", f"take at most {MOST_SLOTS} slots", len(slots))
    shallow = model.depth <= MOST_LAYERS
    require(shallow, "steps.made", f"have at most {MOST_LAYERS} layers", model.depth)
    maps = attention_maps(model, tokens)
    states = model.states(tokens)[:, 0]
    names = model.names or tuple(str(i) for i in range(model.width))
    shown = word if isinstance(word, str) else " ".join(map(str, word))
    kind = KINDS.get(type(made).__name__, "Network")
    return Steps(
        title=title or f"{kind} on {shown or 'the empty input'}",
        slots=slots,
        names=list(names),
        states=_plain(states),
        attention=[[] if m is None else _plain(m[0]) for m in maps],
        ends=_ends(made, word),
    )


def _plain(x: Tensor) -> list[Any]:
    """Four decimals are more than the eye can see."""
    return (x * 1e4).round().div(1e4).tolist()


def _ends(made: Shown, word: Any) -> str:
    assert callable(made)
    out = made(word)
    if isinstance(out, bool):
        return "accepted" if out else "rejected"
    if isinstance(out, list):
        return "output: " + " ".join(map(str, out))
    if hasattr(out, "halted"):
        state = f"state {out.state}, head at {out.head}, tape {out.text()!r}"
        return f"{'halted' if out.halted else 'still running'} after {out.step} steps: {state}"
    return "next symbol: " + " ".join(f"{float(p):.3g}" for p in out)


def steps(path: Path | str, made: Shown, word: Any, title: str | None = None) -> Path:
    """Write the page: one HTML file that loads nothing from anywhere.

    Arrow keys or the slider go from layer to layer, head by head; a slot that is chosen shows what
    it looks at and what its coordinates hold.

    Args:
        path: The HTML file.
        made: By `construct.dyck`, `construct.turing` or `construct.program`.
        word: Its input.
        title: Of the page.
    """
    path = Path(path)
    require(path.suffix.lower() in (".html", ".htm"), "steps.path", "end in .html", str(path))
    told = follow(made, word, title)
    css, js = page_style("steps.css"), template("steps.js")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    page = environment.from_string(template("steps.html")).render(
        css=css,
        js=js,
        policy=page_policy(css, js),
        told=told,
        # "<" could end the script element early, whatever stands in a slot.
        data=json.dumps(asdict(told)).replace("<", "\\u003c"),
        version=installed("allometry"),
    )
    make_folder(path.parent)
    with atomic_write(path) as file:
        file.write(page)
    return path
