"""Weights of the networks that run Turing machines.

Letters: Q states, A symbols, T steps, L cells, b bits of a cell's number, N positions (slots).
"""

from allometry.construct.named_weights import ONE, Head, Layer, Neuron, build, erase, indexed
from allometry.models.transformer.model import Transformer
from allometry.targets.machines import TuringMachine


def cellular(machine: TuringMachine, steps: int, cells: int, *, looped: bool) -> Transformer:
    """One slot per cell and one block per step; the head is a flag that moves between slots.

    Slot 0 is a sink, slot i is cell i - 1 of the window. A block first fetches the state that a
    neighbour has posted to this cell. It then applies the rule for state and symbol: it rewrites
    the symbol, clears the state, and posts the new state to the left, to the right or here. A cell
    without a neighbour attends to the sink, which has no state.

    Tokens: symbol, symbol under the head in the start state, sink.

    Args:
        machine: The machine.
        steps: Number of steps T.
        cells: Number of cells L.
        looped: One block applied T times, instead of T blocks.
    """
    b = max(2, (cells + 1).bit_length())
    here, before, after = indexed("here", b), indexed("before", b), indexed("after", b)
    symbol = {a: f"symbol {a}" for a in machine.symbols}
    state = {q: f"state {q}" for q in machine.states}
    left = {q: f"to left {q}" for q in machine.states}
    right = {q: f"to right {q}" for q in machine.states}
    names = [*symbol.values(), *state.values(), *left.values(), *right.values()]
    names += [*here, *before, *after, "sink"]
    # A match scores b, the sink b - 1, anything else at most b - 2.
    sink = ({ONE: b - 1.0}, {"sink": 1.0})
    heads = [
        Head(
            score=[*(({p: 1.0}, {h: 1.0}) for p, h in zip(place, here, strict=True)), sink],
            fetch=[({posted[q]: 1.0}, state[q]) for q in machine.states],
        )
        for place, posted in ((before, right), (after, left))
    ]
    neurons = [erase(posted[q]) for posted in (left, right) for q in machine.states]
    posts = {-1: left, 0: state, 1: right}
    for (q, a), (written, move, to) in machine.rules.items():
        writes: dict[str, float] = {}
        changes = [
            (state[q], -1.0),
            (symbol[a], -1.0),
            (symbol[written], 1.0),
            (posts[move][to], 1.0),
        ]
        for name, factor in changes:
            writes[name] = writes.get(name, 0.0) + factor
        neurons.append(Neuron({state[q]: 1.0, symbol[a]: 1.0, ONE: -1.0}, writes))
    layer = Layer(heads, neurons)

    def signs(name: str, i: int) -> dict[str, float]:
        # A cell outside the window has no number: no key matches it, and the sink wins.
        if not 1 <= i <= cells:
            return {}
        return {f"{name}{r}": 1.0 if i >> r & 1 else -1.0 for r in range(b)}

    places = [
        {**signs("here", i), **signs("before", i - 1), **signs("after", i + 1)} if i else {}
        for i in range(cells + 1)
    ]
    tokens = [{symbol[a]: 1.0} for a in machine.symbols]
    tokens += [{symbol[a]: 1.0, state[machine.start]: 1.0} for a in machine.symbols]
    return build(
        names,
        [layer] if looped else [layer] * steps,
        tokens=[*tokens, {"sink": 1.0}],
        places=places,
        readout=None,
        kind="encoder",
        hard=True,
        repeat=steps if looped else None,
    )


def autoregressive(machine: TuringMachine, slots: int) -> Transformer:
    r"""Three layers of hard attention that write a run, one token per step.

    Slots: "first", the input symbols, "go", then one token (q, a) per step: in state q symbol a
    was read. The next token is computed as follows.

    Layer 1 averages the moves: $m = p / (t+1)$ with p the head's position, and $r = 1/(t+1)$.
    Layer 2 attends to the slot whose number j is p: the score $2 m j - r j^2$ is largest there,
    and gives p and $p^2$ as integers (slot |p| exists, because the head moves by one per step).
    Layer 3 attends to the latest slot that wrote to cell p: the score is
    $2 p c_j - c_j^2 + j/2N$, and $p^2 - 1/4$ for the first slot, which has the blank and wins
    if no slot wrote there. Token (q, a) has the logit [next state is q] + [symbol is a].

    Differs from the paper: integers are looked up by the quadratic score, which takes constant
    depth; binary addition takes depth log T.

    Args:
        machine: The machine.
        slots: Number of slots N.

    References:
        `wei2022`.
    """
    symbol = {a: f"read {a}" for a in machine.symbols}
    written = {a: f"wrote {a}" for a in machine.symbols}
    state = {q: f"next {q}" for q in machine.states}
    names = [*symbol.values(), *written.values(), *state.values()]
    names += ["first", "input", "idle", "left", "right", "slot", "square"]
    names += ["mean", "share", "place", "far", "cell", "cells"]
    moved = {"right": 1.0, "left": -1.0}
    average = Layer([Head(score=[], fetch=[(moved, "mean"), ({"first": 1.0}, "share")])])

    def place(sign: float) -> Head:
        return Head(
            score=[({"mean": 2 * sign}, {"slot": 1.0}), ({"share": -1.0}, {"square": 1.0})],
            fetch=[({"slot": sign}, "place"), ({"square": 1.0}, "far")],
        )

    # place = p and far = p^2 (one of the two heads attends to slot 0). The cell written by a step
    # is c = p - move, its square p^2 - 2 p move + move^2; gates with large integers are exact.
    big = float(2 * slots)
    locate = Layer([place(1.0), place(-1.0)])
    for direction, sign in (("right", 1.0), ("left", -1.0)):
        for s in (1.0, -1.0):
            form = {"place": s, direction: big, ONE: -big}
            locate.neurons.append(Neuron(form, {"cells": -2 * sign * s}))
    locate.neurons += [
        Neuron({direction: 1.0}, {"cell": -sign, "cells": 1.0})
        for direction, sign in (("right", 1.0), ("left", -1.0))
    ]
    locate.neurons += [
        Neuron({"place": 1.0}, {"cell": 1.0}),
        Neuron({"place": -1.0}, {"cell": -1.0}),
        Neuron({"far": 1.0}, {"cells": 1.0}),
        Neuron({"slot": 1.0, "input": big, ONE: -1.0 - big}, {"cell": 1.0}),
        Neuron({"square": 1.0, "slot": -2.0, "input": big**2, ONE: 1.0 - big**2}, {"cells": 1.0}),
    ]
    key = {"cells": -1.0, "slot": 1 / (2 * slots), "idle": -(big**2), "first": -(big**2)}
    read = Layer(
        [
            Head(
                score=[
                    ({"place": 2.0}, {"cell": 1.0}),
                    ({ONE: 1.0}, key),
                    ({"far": 1.0, ONE: big**2 - 0.25}, {"first": 1.0}),
                ],
                fetch=[({written[a]: 1.0}, symbol[a]) for a in machine.symbols],
            )
        ]
    )
    return build(
        names,
        [average, locate, read],
        tokens=_tokens(machine, written, state),
        places=[{"slot": float(i), "square": float(i * i)} for i in range(slots)],
        readout=[
            *({ONE: -9.0} for _ in range(2 + len(machine.symbols))),
            *({state[q]: 1.0, symbol[a]: 1.0} for q in machine.states for a in machine.symbols),
        ],
        kind="decoder",
        hard=True,
    )


def _tokens(
    machine: TuringMachine, written: dict[str, str], state: dict[str, str]
) -> list[dict[str, float]]:
    """Embeddings of "first", input symbols, "go", and (q, a) for every state and symbol."""
    tokens: list[dict[str, float]] = [{"first": 1.0, written[machine.blank]: 1.0}]
    tokens += [{"input": 1.0, written[a]: 1.0} for a in machine.symbols]
    tokens.append({"idle": 1.0, state[machine.start]: 1.0})
    side = {-1: {"left": 1.0}, 0: {}, 1: {"right": 1.0}}
    for q in machine.states:
        for a in machine.symbols:
            if (q, a) not in machine.rules:
                tokens.append({"idle": 1.0})
                continue
            write, move, to = machine.rules[q, a]
            tokens.append({written[write]: 1.0, state[to]: 1.0, **side[move]})
    return tokens
