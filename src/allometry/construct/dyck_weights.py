r"""Weights of the networks for $\mathrm{Dyck}_{k,D}$.

Positions: a start symbol, the word, and for the layered recogniser an end symbol.
Letters: k bracket types, D depth, n symbols, b = bits of a type.
"""

import math

from allometry.construct.named_weights import (
    ONE,
    Head,
    Layer,
    Neuron,
    build,
    codes,
    erase,
    indexed,
    step,
)
from allometry.models.transformer.model import Transformer


def bits_of(k: int) -> int:
    """Number of bits that encode k types, at least one."""
    return max(1, (k - 1).bit_length())


def layered(k: int, D: int, n: int, *, hard: bool = True, scale: float = 1.0) -> Transformer:
    """The recogniser of depth D + 1 that cancels the innermost brackets layer by layer.

    In each of D layers every bracket attends to the nearest one not yet cancelled, closing ones to
    the left and opening ones to the right. An opening and a closing bracket that attend to each
    other cancel, and a difference of their types is recorded at the closing bracket. The last
    layer attends to any remaining bracket or recorded difference. Outputs at the start symbol: 0
    for a word, at least 1 otherwise.

    Differs from the paper: brackets of different type cancel too and record an error, which gives
    the same verdict with one layer of ReLUs.

    References:
        `yao2021` section 4.1.
    """
    b = bits_of(k)
    kind, left = indexed("type", b), indexed("left", b)
    names = [*kind, "opening", "closing", "edge", "place", *left]
    names += ["left_opening", "right_closing", "error", "verdict"]
    waiting = {"opening": 2.0, "closing": 2.0, "edge": 2.0}
    nearest_left = Head(
        score=[({ONE: 1.0}, {**waiting, "place": 1.0})],
        fetch=[
            *zip([{t: 1.0} for t in kind], left, strict=True),
            ({"opening": 1.0}, "left_opening"),
        ],
        sight="before",
    )
    nearest_right = Head(
        score=[({ONE: 1.0}, {**waiting, "place": -1.0})],
        fetch=[({"closing": 1.0}, "right_closing")],
        sight="after",
    )
    met = {"closing": 1.0, "left_opening": 1.0}
    neurons = [
        Neuron({**met, ONE: -1.0}, {"closing": -1.0}),
        Neuron({"opening": 1.0, "right_closing": 1.0, ONE: -1.0}, {"opening": -1.0}),
        *(erase(name) for name in (*left, "left_opening", "right_closing")),
    ]
    for mine, theirs in zip(kind, left, strict=True):
        neurons.append(Neuron({mine: 1.0, theirs: -1.0, **met, ONE: -2.0}, {"error": 1.0}))
        neurons.append(Neuron({mine: -1.0, theirs: 1.0, **met, ONE: -2.0}, {"error": 1.0}))
    wrong = {"opening": 1.0, "closing": 1.0, "error": 1.0}
    worst = Head(score=[({ONE: 1.0}, wrong)], fetch=[(wrong, "verdict")])
    layers = [Layer([nearest_left, nearest_right], neurons) for _ in range(D)]
    brackets = [
        {**codes(i // 2, b, "type"), "closing" if i % 2 else "opening": 1.0} for i in range(2 * k)
    ]
    edge = {"edge": 1.0}
    return build(
        names,
        [*layers, Layer([worst])],
        tokens=[*brackets, edge, edge],
        places=[{"place": i / (n + 2)} for i in range(n + 2)],
        readout=[{"verdict": 1.0}],
        kind="encoder",
        hard=hard,
        scale=scale,
    )


def compact(k: int, D: int, n: int, p: float | None, *, scale: float | None = None) -> Transformer:
    r"""Three causal softmax layers for any D; two layers for the generator.

    Layer 1 averages +1 for openings and -1 for closings: depth / (i + 1), from which step
    functions compute the depth. Layer 2 fetches the type of the latest opening bracket at the
    required depth: the partner of a closing bracket, or for the generator the innermost open one.
    Layer 3 averages the errors. Outputs of the recogniser at every prefix: 1 (a word) or at most
    0; 1 (prefix of a word) or 0. Outputs of the generator: logits of the 2k brackets and the end.

    Args:
        k: Number of bracket types.
        D: Largest nesting depth.
        n: Largest length of a word.
        p: Probability of an opening bracket, for the generator; `None` for the recogniser.
        scale: Factor on the scores. Default: large enough for n.

    References:
        `yao2021` section 4.2 for the two layers of the generator.
    """
    b = bits_of(k)
    kind, found = indexed("type", b), indexed("found", b)
    names = [*kind, "opening", "closing", "share", "place", *found, "mean"]
    names += ["depth", "square", "outside"]
    names += ["open", "full"] if p is not None else ["error", "bad", "open"]
    K = 2.0 ** math.ceil(math.log2(n + 2))
    sign = {"opening": 1.0, "closing": -1.0}
    first = Layer([Head(score=[], fetch=[(sign, "mean")])])
    first.constant = {"depth": -1.0, "square": 1.0, "outside": 1.0}
    for c in range(D + 2):
        writes = {"depth": 1.0, "square": float(2 * c - 1)}
        if c == 0:
            writes["outside"] = -1.0
        if c == D + 1:
            writes["outside"] = 1.0
        if c == 1:
            writes["open"] = 1.0
        if c == D and p is not None:
            writes["full"] = 1.0
        first.neurons += step({"mean": 1.0, "share": -(c - 0.5)}, 0.0, K, writes)
    query = {"depth": 2.0} if p is not None else {"depth": 2.0, "closing": 2.0}
    key = {"square": -1.0, "closing": -4.0 * (D + 2) ** 2, "place": 0.5}
    match = Head(
        score=[(query, {"depth": 1.0}), ({ONE: 1.0}, key)],
        fetch=list(zip([{t: 1.0} for t in kind], found, strict=True)),
    )
    second = Layer([match])
    layers = [first, second]
    if p is None:
        second.neurons = [Neuron({"outside": 1.0}, {"error": 1.0})]
        for mine, theirs in zip(kind, found, strict=True):
            for s in (1.0, -1.0):
                form = {mine: s, theirs: -s, "closing": 1.0, ONE: -1.0}
                second.neurons.append(Neuron(form, {"error": 1.0}))
        third = Layer([Head(score=[], fetch=[({"error": 1.0}, "bad")])])
        third.neurons = [
            Neuron({"bad": K}, {"bad": 1.0}),
            Neuron({"bad": K, ONE: -1.0}, {"bad": -1.0}),
            erase("bad"),
        ]
        layers.append(third)
        readout = [{ONE: 1.0, "bad": -1.0, "open": -1.0}, {ONE: 1.0, "bad": -1.0}]
    else:
        readout = _logits(k, b, p)
    brackets = [
        {**codes(i // 2, b, "type"), "closing" if i % 2 else "opening": 1.0} for i in range(2 * k)
    ]
    return build(
        names,
        layers,
        tokens=[*brackets, {}],
        places=[{"share": 1 / (i + 1), "place": i / (n + 1)} for i in range(n + 1)],
        readout=readout,
        kind="decoder",
        hard=False,
        scale=80.0 * (n + 1) if scale is None else scale,
    )


def _logits(k: int, b: int, p: float) -> list[dict[str, float]]:
    """Linear forms of the logits of brackets and end; -60 marks impossible symbols."""
    never = 60.0
    rows: list[dict[str, float]] = []
    for i in range(k):
        rows.append({ONE: math.log(p / k), "full": -never})
        # The Hamming distance to type i is linear in the fetched bits.
        ones = i.bit_count()
        row = {ONE: math.log(1 - p) - never * (ones + 1), "open": never}
        row |= {f"found{r}": never if i >> r & 1 else -never for r in range(b)}
        rows.append(row)
    return [*rows, {ONE: math.log(1 - p), "open": -never}]
