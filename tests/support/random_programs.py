"""Random expressions of the program language, for property tests."""

from allometry.construct.programs import (
    aggregate,
    combine,
    elementwise,
    indices,
    latest,
    loop,
    numerical,
    select,
    selector_width,
    tokens,
)


def random_operator(rng, depth, leaves=(tokens, indices)):
    """A random expression whose values are small numbers."""
    if depth == 0 or rng.random() < 0.2:
        return rng.choice(leaves)
    kind = rng.choice(["map", "combine", "width", "mean", "sum", "one"])
    inner = random_operator(rng, depth - 1, leaves)
    if kind == "map":
        m, k = rng.randint(2, 3), rng.randint(0, 2)
        return elementwise(lambda x: int(x * 2 + k) % m, inner)
    other = random_operator(rng, depth - 1, leaves)
    if kind == "combine":
        return combine(lambda x, y: int(x > y), inner, other)
    if kind == "sum":
        return inner - other
    keys, queries = (elementwise(lambda x: int(x * 2) % 3, side) for side in (inner, other))
    chosen = select(keys, queries, rng.choice(["==", "<", ">=", "!="]))
    extra = rng.choice(["none", "past", "or", "not"])
    if extra == "past":
        chosen = chosen & select(indices, indices, rng.choice(["<", "<="]))
    elif extra == "or":
        chosen = chosen | select(tokens, 1)
    elif extra == "not":
        chosen = ~(chosen | select(indices, indices, ">"))
    if kind == "width":
        return selector_width(chosen)
    if kind == "mean":
        return aggregate(chosen, numerical(elementwise(lambda x: int(x > 0), inner)))
    return aggregate(chosen, elementwise(lambda x: x, inner), default=0)


def small(inner, modulus=3):
    """A function of an expression to 0 ... modulus - 1."""
    return elementwise(lambda x: int(x * 2) % modulus, inner)


def random_loop(rng, depth, times):
    """A random loop of one to three states with values 0, 1 and 2."""
    names = ["p", "q", "r"][: rng.randint(1, 3)]

    def step(states):
        leaves = [tokens, indices, *states.values()]
        changed = {}
        for name in names:
            if rng.random() < 0.2 and name != names[0]:
                continue
            inner = random_operator(rng, depth, [tokens, indices, *states.values()])
            kind = rng.choice(["map", "fetch", "latest", "both"])
            if kind == "fetch":
                inner = aggregate(select(indices, indices - rng.randint(0, 2)), small(inner), 0)
            elif kind == "latest":
                chosen = select(small(rng.choice(leaves)), small(rng.choice(leaves)))
                inner = aggregate(latest(chosen), small(inner), default=1)
            elif kind == "both":
                inner = combine(lambda x, y: x + y, small(inner), states[name])
            changed[name] = small(inner, rng.randint(2, 3))
        return changed

    starts = {name: small(rng.choice([tokens, indices])) for name in names}
    return loop(starts, step, times=times, result=rng.choice(names))
