"""An interactive page that steps through the layers of a constructed network on one input.

Letters: l layers, h heads, n slots, d width.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, final, runtime_checkable

import torch
from torch import Tensor

from allometry._core.errors import require
from allometry.construct import attention_maps
from allometry.models import Transformer
from allometry.report import page_template

MOST_SLOTS = 64
MOST_LAYERS = 128
KINDS = {
    "DyckRecogniser": "Recogniser of brackets",
    "DyckGenerator": "Generator of brackets",
    "Program": "Program",
    "Generator": "Program that generates",
    "CellularRun": "Turing machine",
    "AutoregressiveRun": "Turing machine, token by token,",
}


@runtime_checkable
class Shown(Protocol):
    """What this page needs of a construction: its model and its tokens for an input."""

    @property
    def model(self) -> Transformer:
        """The network."""
        ...

    def slots(self, word: Any, /) -> tuple[Tensor, list[str]]:
        """Token ids (1, n), and the name of each slot."""
        ...


@final
@dataclass(frozen=True)
class Steps:
    """The content of the page as plain values.

    Attributes:
        title: Title of the page.
        slots: Name of each slot.
        names: Names of the residual stream's coordinates.
        states: The stream before the first block and after each, by slot.
        attention: For each block and head the weights, rows attending to columns; empty without
            attention.
        ends: The output.
    """

    title: str
    slots: list[str]
    names: list[str]
    states: list[list[list[float]]]
    attention: list[list[list[list[float]]]]
    ends: str


@torch.no_grad()
def follow(made: Shown, word: Any, title: str | None = None) -> Steps:
    """The residual stream and every head's attention of a construction on one input.

    Args:
        made: By `construct.dyck`, `construct.turing` or `construct.program`.
        word: Its input.
        title: Title of the page. Default: the construction's kind and input.
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
    """Nested lists, rounded to the four decimals that the page needs."""
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
    """Write the page: one HTML file that loads nothing from elsewhere.

    Arrow keys or the slider select the layer. Selecting a slot shows what it attends to and the
    values of its coordinates.

    Args:
        path: The HTML file.
        made: By `construct.dyck`, `construct.turing` or `construct.program`.
        word: Its input.
        title: Title of the page. Default: the construction's kind and input.
    """
    path = page_template.html_path(path, "steps")
    content = follow(made, word, title)
    page = page_template.fill(
        "steps.html",
        "steps.css",
        script="steps.js",
        steps=content,
        # "<" could end the script element early.
        data=json.dumps(asdict(content)).replace("<", "\\u003c"),
    )
    return page_template.save(path, page)
