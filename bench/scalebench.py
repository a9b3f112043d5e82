"""The protocol of ScaleBench (arXiv 2604.22753) in own code: choose runs, fit, predict.

Per task and group the summed cost of all candidates is the whole budget. At 1, 5 and 10 % of it a
law is fitted to the runs chosen so far, and R2 is taken over the target rows of all groups
together, clipped to [-1, 1]. Rows of the table: baselines with each published law instance's form
(mean over instances and seeds), `choose_runs` with the same forms, and `choose_runs` with the form
of `auto`. Run: `python bench/scalebench.py [--seeds 2] [--tasks moe parallel vocab]`.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from allometry import laws
from allometry.laws.multivariate.campaigns import looks
from allometry.laws.multivariate.expression_forms import ExpressionForm, Link, Parameter
from allometry.laws.multivariate.members import fit_sets
from allometry.runs.importers.raw_columns import load_columns

DATA = Path(__file__).parents[2] / "shared" / "data" / "scalebench"
CHECKPOINTS = (0.01, 0.05, 0.1)
BEST = {"vocab": (0.96, 0.98, 0.98, 0.93), "moe": (0.67, 0.80, 0.83, 0.81),
        "parallel": (-1.0, 0.77, 0.99, 0.99)}  # fmt: skip
"""Best published row of each column, and all data."""

GRID = 16
"""Starts of a fit."""


@dataclass(frozen=True)
class Task:
    """A task: columns of candidates and targets, and the published forms with their ranges."""

    names: dict[str, str]
    response: str
    cost: str
    forms: dict[str, dict[str, tuple[float, float]]]
    group: str | None = None


def _task(name: str) -> Task:
    if name == "moe":
        N, X = "dense_parameter_count", "num_experts"
        e = (-0.5, 1.5)
        return Task({"N": N, "X": X}, "loss_validation", f"{N}*{X}", {
            "c + B/(N^a*X^b)": {"B": (0.1, 500), "c": (0, 3), "a": (0, 1.5), "b": e},
            "c + A*(N^a*X^b)^(-g)": {"A": (0.1, 500), "c": (0, 3), "a": (0, 2), "b": (0, 2),
                                     "g": (0, 2)},
            "A*N^a/(1 + B*X^b) + C*N^(a*0.6) + d": {
                "A": (1, 5e3), "a": (-1.5, 0), "B": (0.01, 20), "b": (0, 2), "C": (-1e4, 1e4),
                "d": (-5, 5)},
            "A/(N^a*(1 + b*X)^g) + c + d*(log(N) - 0.4*log(1 + X))": {
                "A": (0.1, 500), "a": (0, 1.5), "b": (0.01, 20), "g": (0, 1.5), "c": (-5, 5),
                "d": (-1, 1)},
            "c + exp(p + q*log(X) + r*log(N) + s*log(X)*log(N)) + t*log(X)": {
                "c": (0, 3), "p": (-5, 10), "q": (-1, 1), "r": (-1, 1), "s": (-0.1, 0.1),
                "t": (-1, 1)},
            "A*N^(-b)*(1 + c*X^(-d)) + g + f/(X*N^0.05)": {
                "A": (1, 200), "b": (0, 1.5), "c": (-5, 20), "d": (-0.5, 2), "g": (-5, 5),
                "f": (-20, 20)},
            "p*X^q*N^r + s*N^t + u": {"p": (-500, 500), "q": (-1, 0.5), "r": (-1.5, 0.5),
                                      "s": (-500, 500), "t": (-1.5, 0.5), "u": (-5, 5)},
            "A*N^b*X^c + d": {"A": (1, 500), "b": (-1.5, 0.5), "c": (-1.5, 0.5), "d": (0, 3)},
            "c + A*(N*X^g)^(-a)": {"c": (0, 3), "A": (1, 500), "g": (-1, 2), "a": (0, 2)},
            "c + A*(N/1e9)^(-a)*((1 + B*X^g)/(1 + B))^(-b)": {
                "c": (0, 3), "A": (0.1, 15), "a": (0, 2), "B": (0.01, 100), "g": (0, 6),
                "b": (0, 2)},
        })  # fmt: skip
    if name == "parallel":
        a, b = {"a": (0, 2)}, {"b": (0, 2)}
        low = {"c": (-5, 5)}
        return Task({"N": "num_params", "S": "parallel_size"}, "loss", "num_params", {
            "c + A*N^-a + B*S^-b + C*N^-a*S^-b": low | a | b | {"A": (1, 500), "B": (-50, 50),
                                                                "C": (-100, 100)},
            "c + A*N^-a + B*S^-b": low | a | b | {"A": (1, 500), "B": (-50, 50)},
            "A*N^-a + C/(1 + S) + c": low | a | {"A": (1, 500), "C": (-5, 5)},
            "A*N^-a + C*S^-0.5 + c": low | a | {"A": (1, 500), "C": (-5, 5)},
            "(A/(N*(k*log(S) + 1)))^a + c": low | {"a": (0.01, 3), "A": (1e3, 1e9),
                                                   "k": (0.01, 100)},
            "c + A*(N^-a + S^-b)": {"c": (-200, 200), "A": (-200, 200)} | a | b,
            "c + A*N^-a/(1 + k*log(S))": low | a | {"A": (1, 500), "k": (0.001, 50)},
            "(A*N^-a + c)/(1 + k*log(S))": low | a | {"A": (1, 500), "k": (0.001, 10)},
            "A*N^-a*S^-b": a | b | {"A": (1, 5000)},
            "(A*N^-a + c)*S^-b": low | a | b | {"A": (1, 500)},
        }, "group")  # fmt: skip
    P, V, D = "non_vocab_parameters", "vocab_size", "num_characters"
    c, k = {"c": (-100, 100)}, (-2, 2)
    big = (-1e4, 1e4)
    return Task({"P": P, "V": V, "D": D}, "unigram_normalized_loss", f"6*{P}*{D}", {
        "c + A*V^b*P^g*D^h": c | {"A": big, "b": k, "g": k, "h": k},
        "c + A*((P^(-a*r) + D^(-b*r))/2)^(1/r)*(1 + C*(log(V) - v)^2)": c | {
            "A": big, "a": (0, 2), "b": (0, 2), "C": (-1, 1), "v": (0, 20), "r": (0.1, 10)},
        "c + ((A*P^-a)^q + (B*(D*V^f)^-b)^q)^(1/q)": c | {
            "A": (1, 1e4), "B": (1, 1e4), "a": (0, 2), "b": (0, 2), "f": k, "q": (0.1, 10)},
        "c + A*max(P^a, l*D^b)^-d*V^-g": c | {
            "A": (1, 1e4), "a": (0, 2), "b": (0, 2), "l": (1e-4, 1e4), "d": (0, 2), "g": k},
        "p*P^q*V^r*D^s + t*P^u + c": c | {"p": big, "q": k, "r": k, "s": k, "t": big, "u": k},
        "A*(P*V^k)^-a + B*(D*V^l)^-b + c": c | {
            "A": (1, 1e4), "B": (1, 1e4), "a": (0, 2), "b": (0, 2), "k": k, "l": k},
        "A*P^-a*D^-b + B*V^g*D^-d + c": c | {
            "A": (1, 1e4), "B": (1, 1e4), "a": k, "b": k, "g": k, "d": k},
        "c + d*log(V) + V^b*(A*P^-a + B*D^-g)": c | {
            "d": (-100, 100), "A": big, "B": big, "a": (0, 2), "b": k, "g": (0, 2)},
        "A*P^-a*D^-b*(1 + g*log(V)) + d*V^f + c": c | {
            "A": big, "a": (0, 2), "b": (0, 2), "g": (-1, 1), "d": big, "f": k},
        "c + exp(a + p*log(P) + v*log(V) + w*log(V)^2 + d*log(D) + x*log(V)*log(D))": c | {
            "a": (-20, 20), "p": k, "v": k, "w": (-0.1, 0.1), "d": k, "x": (-0.1, 0.1)},
    })  # fmt: skip


class Data:
    """Candidates and targets as arrays."""

    def __init__(self, name: str) -> None:
        self.task = _task(name)
        self.train, self.test = (load_columns(DATA / f"{name}_{k}.csv") for k in ("train", "test"))
        letters = self.task.names
        self.X, self.T = (
            np.stack([table[column] for column in letters.values()])
            for table in (self.train, self.test)
        )
        self.y, self.goal = (np.array(t[self.task.response]) for t in (self.train, self.test))
        at = dict(zip(letters.values(), self.X, strict=True))
        self.cost = np.ones(len(self.y))
        for factor in self.task.cost.split("*"):
            self.cost = self.cost * (at[factor] if factor in at else float(factor))
        by = self.task.group
        self.group, self.goal_group = (
            np.array(t[by] if by else [""] * len(t[self.task.response]), dtype=object)
            for t in (self.train, self.test)
        )
        self.groups = list(dict.fromkeys(self.group))

    def form(self, text: str, y: np.ndarray) -> ExpressionForm:
        """A published form on the scale of the response, as its fits are."""
        known = {}
        for letter, (low, high) in self.task.forms[text].items():
            sign = 1 if low > 0 else 0
            known[letter] = Parameter(letter, sign, low, high)
        unit = float(np.std(y)) or 1.0
        return ExpressionForm(text, text, list(self.task.names), Link(False, unit), known)

    def fitted(self, text: str, rows: np.ndarray, rng: np.random.Generator):
        """The form fitted by least squares to some runs of one group."""
        form = self.form(text, self.y)
        X = self.X[[list(self.task.names).index(v) for v in form.variables]]
        z = form.link(self.y)
        with np.errstate(all="ignore"):
            return fit_sets(form, X, z, [rows], starts=GRID, rng=rng, delta=np.inf, shrink=False)[
                0
            ]

    def score(self, text: str, chosen: dict[str, np.ndarray], seed: int) -> float:
        """R2 of a form fitted group by group."""
        out = np.full(len(self.goal), np.nan)
        for g, rows in chosen.items():
            if len(rows):
                member = self.fitted(text, rows, np.random.default_rng(seed))
                order = [list(self.task.names).index(v) for v in member.form.variables]
                at = self.goal_group == g
                with np.errstate(all="ignore"):
                    out[at] = member.form.link.inverse(member.value(self.T[order][:, at]))
        return r2(self.goal, out)


def r2(y: np.ndarray, p: np.ndarray) -> float:
    """Clipped coefficient of determination over the rows that are predicted."""
    fine = np.isfinite(p)
    if not fine.any():
        return -1.0
    y, p = y[fine], p[fine]
    return float(np.clip(1 - ((y - p) ** 2).sum() / ((y - y.mean()) ** 2).sum(), -1, 1))


def simple(data: Data, rows: np.ndarray, how: str, rng: np.random.Generator) -> list[list[int]]:
    """Random, cheapest or cost-weighted order; a row that exceeds a checkpoint waits for it."""
    cost = data.cost[rows]
    if how == "cheapest":
        order = list(rows[np.argsort(cost, kind="stable")])
    elif how == "random":
        order = list(rng.permutation(rows))
    else:
        keys = rng.exponential(size=len(rows)) * cost  # sampling without replacement by 1/cost
        order = list(rows[np.argsort(keys)])
    out, spent, have = [], 0.0, []
    for share in CHECKPOINTS:
        limit = share * cost.sum() * (1 + 1e-12)
        while order and spent + data.cost[order[0]] <= limit:
            spent += data.cost[order[0]]
            have.append(int(order.pop(0)))
        out.append(list(have))
    return out


def optimal(
    data: Data, rows: np.ndarray, g: str, text: str, how: str, rng: np.random.Generator
) -> list[list[int]]:
    """Local D- or V-optimal design for one form, from the cheapest runs on, with its refits."""
    cost, total = data.cost, float(data.cost[rows].sum())
    p = len(data.task.forms[text])
    have = [int(i) for i in rows[np.argsort(cost[rows], kind="stable")][: int(2.5 * p)]]
    while len(have) > 1 and cost[have].sum() > 0.02 * total:
        have.pop()
    out, step, member = [], 0, None
    for share in CHECKPOINTS:
        kept = list(have)
        while cost[kept].sum() > share * total:
            kept.pop()
        while len(kept) == len(have):
            if member is None or len(have) >= step:
                member, step = data.fitted(text, np.array(have), rng), int(1.2 * len(have)) + 1
                order = [list(data.task.names).index(v) for v in member.form.variables]
                with np.errstate(all="ignore"):
                    J = np.nan_to_num(
                        member.form.evaluate(member.theta[None], data.X[order])[1][0].T
                    )
                    at = data.goal_group == g
                    JT = member.form.evaluate(member.theta[None], data.T[order][:, at])[1][0].T
                JT = np.nan_to_num(JT)
                sd = np.array([(q.high - q.low) / 4 if not q.sign else 1.0
                               for q in member.form.parameters])  # fmt: skip
                noise = max(member.noise, 0.03) ** 2
                S = np.linalg.pinv(J[have].T @ J[have] / noise + np.diag(1 / sd**2))
            left = share * total - cost[have].sum()
            able = np.array([i for i in rows if i not in set(have) and cost[i] <= left])
            if not len(able):
                break
            K = J[able] @ S
            own = np.maximum((K * J[able]).sum(1), 0.0)
            if how == "D-optimal":
                gain = np.log1p(own / noise) / (cost[able] / total) ** 0.4
            else:
                gain = ((K @ JT.T) ** 2).sum(1) / (noise + own) / (cost[able] / total) ** 0.3
            i = int(able[int(np.argmax(gain))])
            v = S @ J[i]
            S = S - np.outer(v, v) / (noise + J[i] @ v)
            have.append(i)
            kept = have
        out.append(list(kept))
    return out


def ours(data: Data, seed: int) -> list[dict[str, np.ndarray]]:
    """Runs of `choose_runs` at each checkpoint, one after another.

    After each run its loss is seen and the next one chosen anew. From ten runs of a group on that
    is done after every 20 % of more runs, as for the optimal designs below.
    """
    task = data.task
    names = [*task.names.values(), *([task.group] if task.group else [])]
    have: dict[str, list[int]] = {g: [] for g in data.groups}
    out = []

    def frame(table, rows):
        return {k: [table[k][i] for i in rows] for k in (*names, task.response)}

    def more(g: str, share: float) -> bool:
        rows = np.flatnonzero(data.group == g)
        rest = np.array([i for i in rows if i not in set(have[g])])
        left = share * data.cost[rows].sum() - data.cost[have[g]].sum()
        if not len(rest) or data.cost[rest].min() > left * (1 + 1e-12):
            return False
        every = [i for each in have.values() for i in each]
        picked = laws.choose_runs(
            frame(data.train, rest), frame(data.train, every), variables=names,
            response=task.response, cost=data.cost[rest].tolist(),
            target=frame(data.test, np.flatnonzero(data.goal_group == g)),
            budget=left, seed=seed, most=looks(len(have[g])),
        )  # fmt: skip
        have[g] += [int(rest[i]) for i in picked]
        return bool(picked)

    for share in CHECKPOINTS:
        open_groups = list(data.groups)
        while open_groups:
            open_groups = [g for g in open_groups if more(g, share)]
        out.append({g: np.array(rows, int) for g, rows in have.items()})
    return out


def own_form(data: Data, rows: np.ndarray, seed: int) -> tuple[float, float]:
    """R2 and coverage of `auto` fitted to some runs."""
    if not len(rows):
        return -1.0, float("nan")
    task = data.task
    names = [*task.names.values(), *([task.group] if task.group else [])]
    table = {k: [data.train[k][i] for i in rows] for k in (*names, task.response)}
    law = laws.fit(
        table, variables=names, response=task.response, cost=data.cost[rows].tolist(), seed=seed
    )
    lower, value, upper = law.band(**{k: np.array(data.test[k], dtype=object) for k in names})
    return r2(data.goal, value), float(((lower <= data.goal) & (data.goal <= upper)).mean())


def run(name: str, seeds: int) -> None:
    """Print the table of one task."""
    data = Data(name)
    forms = list(data.task.forms)
    every = {g: np.flatnonzero(data.group == g) for g in data.groups}
    print(f"\n{name}: {len(data.y)} candidates, {len(data.goal)} targets")
    print("row".ljust(34), *(f"{share:6.0%}" for share in CHECKPOINTS), "  all")

    def line(label: str, values: list, last: float | None = None) -> None:
        means = [float(np.mean(v)) for v in values]
        spread = [float(np.std(v)) for v in values]
        text = " ".join(f"{m:6.3f}" for m in means)
        tail = f" {last:6.3f}" if last is not None else ""
        print(
            label.ljust(34), text + tail, " sd", " ".join(f"{s:.2f}" for s in spread), flush=True
        )

    print("best published".ljust(34), " ".join(f"{v:6.2f}" for v in BEST[name]))
    line("all data, published forms", [[data.score(f, every, 0) for f in forms]])
    chosen = [ours(data, seed) for seed in range(seeds)]
    auto = [[own_form(data, np.concatenate(list(c[k].values())), s)
             for s, c in enumerate(chosen)] for k in range(3)]  # fmt: skip
    whole = own_form(data, np.arange(len(data.y)), 0)
    line("choose_runs, own form", [[r for r, _ in each] for each in auto], whole[0])
    line("  coverage of 95 % intervals", [[c for _, c in each] for each in auto], whole[1])
    line("choose_runs, published forms",
         [[data.score(f, c[k], s) for f in forms for s, c in enumerate(chosen)]
          for k in range(3)])  # fmt: skip
    for how in ("random", "cheapest", "cost-weighted", "D-optimal", "V-optimal"):
        scores: list[list[float]] = [[], [], []]
        for f in forms:
            for seed in range(1 if how == "cheapest" else seeds):
                rng = np.random.default_rng(seed)
                picks = {
                    g: optimal(data, rows, g, f, how, rng) if "optimal" in how
                    else simple(data, rows, how, rng)
                    for g, rows in every.items()
                }  # fmt: skip
                for k in range(3):
                    at = {g: np.array(each[k], int) for g, each in picks.items()}
                    scores[k].append(data.score(f, at, seed))
        line(how, scores)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tasks", nargs="*", default=["parallel", "moe", "vocab"])
    asked = parser.parse_args()
    if not DATA.is_dir():
        sys.exit(f"{DATA} is absent.")
    for each in asked.tasks:
        run(each, asked.seeds)
