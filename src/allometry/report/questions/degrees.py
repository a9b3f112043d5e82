"""Which degree learns most at one budget: test errors of stacks on teachers, and solved shares."""

import functools
import math
from typing import TYPE_CHECKING

from allometry._core.estimate import Estimate
from allometry.report import formatting as fmt
from allometry.report import theme
from allometry.report.cells import Cell, Head, Table, estimate, number
from allometry.report.content import Chart
from allometry.report.questions.findings import Answer, Finding
from allometry.report.theme import LIGHT, Spec, layer

if TYPE_CHECKING:
    import pandas as pd

WHOLE = ("T_2", "T_3", "T_4")
"""The stacks of one whole degree, whose order the argument of `best_words` predicts."""
PREDICTED = "T_3"
"""The stack that the argument predicts to be best."""


def degree(done: "pd.DataFrame") -> Answer:
    """The answer to `allometry run degree`."""
    # The package of models imports torch.
    from allometry.models.polynomial_degree import best_words

    learnt, solved = done[done["part"] == "learning"], done[done["part"] == "solving"]
    argument = Finding("argued", "What the argument predicts", best_words())
    findings = [f for f in (_learning(learnt), _solving(solved), argument) if f is not None]
    return Answer(_verdict(learnt, solved), (), tuple(findings))


def errors(learnt: "pd.DataFrame") -> dict[str, dict[str, Estimate]]:
    """The median test error of each stack on each teacher, by their names."""
    found: dict[str, dict[str, Estimate]] = {}
    for row in learnt.sort_values("rung").to_dict("records"):
        middle, lo, hi = (_number(row[k]) for k in ("test_loss", "test_lo", "test_hi"))
        value = Estimate(middle, lo=lo, hi=hi, n=int(row["seeds"]))
        found.setdefault(str(row["target"]), {})[str(row["family"])] = value
    return found


def _number(x: float | None) -> float:
    return math.inf if x is None or math.isnan(x) else float(x)


def apart(a: Estimate, b: Estimate) -> bool:
    """Whether the two intervals are disjoint."""
    return a.interval[1] < b.interval[0] or b.interval[1] < a.interval[0]


def winner(stacks: dict[str, Estimate]) -> str | None:
    """The stack whose interval lies below all others', if there is one."""
    best = min(stacks, key=lambda n: stacks[n].value)
    alone = all(apart(stacks[best], e) for n, e in stacks.items() if n != best)
    return best if alone and len(stacks) > 1 else None


def _whole(stacks: dict[str, Estimate]) -> dict[str, Estimate]:
    return {n: stacks[n] for n in WHOLE if n in stacks}


def _verdict(learnt: "pd.DataFrame", solved: "pd.DataFrame") -> str:
    sentences = []
    by = {t: _whole(s) for t, s in errors(learnt).items()}
    by = {t: s for t, s in by.items() if len(s) > 1}
    if by:
        sentences.append(_winners(by))
        if set(WHOLE) <= {n for s in by.values() for n in s}:
            first = sum(winner(s) == PREDICTED for s in by.values())
            sentences.append(
                f"The predicted order, degree 3 first, holds on {first} of "
                f"{fmt.several(len(by), 'teacher')}."
            )
    found = {(r["target"], r["family"]): r for r in solved.to_dict("records")}
    three, two = (found.get(("Chebyshev 9", f"{n}, six forms")) for n in (PREDICTED, "T_2"))
    if three is not None and two is not None:
        sentences.append(
            f"Second-order optimisation fits Chebyshev 9 with T_3 from "
            f"{fmt.percent(three['solved'])} of the starts and with T_2 from "
            f"{fmt.percent(two['solved'])}."
        )
    return " ".join(sentences) or "No run has finished yet, so there is no answer."


def _winners(by: dict[str, dict[str, Estimate]]) -> str:
    """Which degree learns best on which teacher."""
    wins = {t: winner(s) for t, s in by.items()}
    names = sorted({w for w in wins.values() if w is not None})
    if not names:
        return "At one budget, the degrees are not distinguishable on any teacher."
    if len(names) == 1 and all(wins.values()):
        return f"At one budget, {names[0]} learns best on every teacher."
    each = [f"{w} on {t}" for t, w in wins.items() if w is not None]
    each[0] = each[0].replace(" on ", " learns best on ", 1)
    rest = [t for t, w in wins.items() if w is None]
    overlap = f"; on {fmt.listed(rest)} the intervals overlap" if rest else ""
    return f"At one budget, no degree is best on every teacher: {fmt.listed(each)}{overlap}."


def _learning(learnt: "pd.DataFrame") -> Finding | None:
    if learnt.empty:
        return None
    by = errors(learnt)
    sentences = [
        "Stacks with the same number of linear forms are trained with Adam on fresh points. The "
        "learning rate is chosen on validation points with separate seeds. Errors are squared "
        "and relative to the teacher's variance, on test points used in neither step. They are "
        "medians over seeds with distribution-free 95 % intervals."
    ]
    sentences += [_on_teacher(teacher, stacks) for teacher, stacks in by.items()]
    sentences += _real_degrees(by)
    charts = tuple(
        Chart(
            f"errors-{place + 1}",
            functools.partial(_errors_chart, learnt[learnt["target"] == teacher], teacher),
            f"Relative squared error of each stack on {teacher}. Dots are seeds; the bar is the "
            "95 % interval of the median.",
        )
        for place, teacher in enumerate(by)
    )
    return Finding("learning", "Test errors", tuple(sentences), charts, (_table(learnt),))


def _on_teacher(teacher: str, stacks: dict[str, Estimate]) -> str:
    whole = _whole(stacks)
    if len(whole) < 2:
        return f"On {teacher}: too few whole degrees to compare."
    order = sorted(whole, key=lambda n: whole[n].value)
    figures = [f"{n} {fmt.estimated(whole[n], fmt.loss)}" for n in order]
    pairs = [(a, b) for i, a in enumerate(order) for b in order[i + 1 :]]
    ties = [f"{a} and {b}" for a, b in pairs if not apart(whole[a], whole[b])]
    overlap = "The intervals are disjoint"
    if ties:
        overlap = f"The intervals of {fmt.listed(ties)} overlap"
    return f"On {teacher}: {fmt.listed(figures)}. {overlap}."


def _real_degrees(by: dict[str, dict[str, Estimate]]) -> list[str]:
    better: list[str] = []
    worse: list[str] = []
    tried = 0
    for teacher, stacks in by.items():
        for name in (n for n in stacks if n.startswith("T_e")):
            if PREDICTED not in stacks:
                continue
            tried += 1
            if apart(stacks[name], stacks[PREDICTED]):
                first = stacks[name].value < stacks[PREDICTED].value
                (better if first else worse).append(f"{name} on {teacher}")
    if not tried:
        return []
    text = f"In {fmt.several(tried, 'comparison')} of degree e with T_3, "
    text += f"e is better in {len(better)}" + (f" ({fmt.listed(better)})" if better else "")
    text += f", worse in {len(worse)}" + (f" ({fmt.listed(worse)})" if worse else "")
    return [f"{text}, and the intervals overlap in {tried - len(better) - len(worse)}."]


def _table(learnt: "pd.DataFrame") -> Table:
    import pandas as pd

    heads = (
        Head("Teacher", kind="tight"),
        Head("Rank", "(epsilon 0.1)", "num"),
        Head("Stack", kind="tight"),
        Head("Degrees", kind="tight"),
        Head("N", "parameters", "num"),
        Head("Learning rate", "chosen", "num"),
        Head("Error", "median, 95 % interval", "num"),
        Head("Seeds", kind="num"),
    )
    by = errors(learnt)
    rows = []
    place = {teacher: i for i, teacher in enumerate(by)}
    learnt = learnt.assign(place=learnt["target"].map(place))
    for row in learnt.sort_values(["place", "rung"]).to_dict("records"):
        known = "unknown" if pd.isna(row["rank"]) else f"{row['rank']:.0f}"
        rows.append(
            (
                Cell(str(row["target"]), kind="tight"),
                Cell(known, more=f"({row['epsilon_rank']:.0f})", kind="num"),
                Cell(str(row["family"]), kind="tight"),
                Cell(str(row["shape"]), kind="tight"),
                number(row["N"], fmt.count),
                number(row["rate"], fmt.significant),
                estimate(by[row["target"]][row["family"]], fmt.loss),
                Cell(f"{row['seeds']:.0f}", kind="num"),
            )
        )
    caption = "Every stack on every teacher; in brackets the epsilon-rank at 0.1 (d_2)"
    return Table(caption, heads, tuple(rows))


def _errors_chart(learnt: "pd.DataFrame", teacher: str, width: int) -> Spec:
    import pandas as pd

    learnt = learnt.sort_values("rung")
    names = [str(n) for n in learnt["family"]]
    by = errors(learnt)[teacher]
    seeds = pd.DataFrame(
        [
            {"stack": row["family"], "error": e}
            for row in learnt.to_dict("records")
            for e in row["errors"]
            if e is not None and e > 0
        ]
    )
    rows = [
        {
            "stack": n,
            "error": e.value,
            "lo": e.interval[0],
            "hi": e.interval[1],
            "tooltip": f"{n}: {fmt.estimated(e, fmt.loss)}",
        }
        for n, e in by.items()
    ]
    data = pd.DataFrame(rows)
    hue = [LIGHT["c1"] if n in WHOLE else LIGHT["c3"] for n in names]
    colour = {"field": "stack", "type": "nominal", "legend": None}
    colour |= {"scale": {"domain": names, "range": hue}}
    ends = theme.extent([*seeds["error"], *data["lo"], *data["hi"]], 0.05)
    x = theme.log_axis("error", *ends, fmt.significant, None, 5)
    y = {
        "field": "stack",
        "type": "nominal",
        "sort": names,
        "axis": {"title": None, "grid": False},
    }
    low, bar = x | {"field": "lo"}, {"strokeWidth": 2.5, "aria": False}
    tick = {"type": "tick", "thickness": 2.5, "size": 15}
    marks = [
        layer(
            seeds, "point", {"filled": True, "size": 16, "opacity": 0.35, "aria": False},
            x=x, y=y, color=colour,
        ),
        layer(data, "rule", bar, x=low, x2="hi", y=y, color=colour),
        layer(data, "tick", tick, x=x, y=y, color=colour, tooltip="tooltip"),
    ]  # fmt: skip
    return theme.styled(marks, f"Error on {teacher}", width, 26 * len(names) + 60)


def _solving(solved: "pd.DataFrame") -> Finding | None:
    if solved.empty:
        return None
    sentences = (
        "Six forms of width 1 make three layers of degree 2 (total degree 8) or two of degree 3 "
        "(total degree 9). Levenberg-Marquardt with random perturbations fits them to "
        "Chebyshev polynomials from many starts. Solved means a relative squared error below "
        "0.001 on fresh points. A polynomial of degree 8 has an error of at least 0.207 on "
        "Chebyshev 9.",
        "Two other designs reach degree 9 at other costs: half of the units cubic, and cubes "
        "whose three forms share their weights.",
    )
    chart = Chart(
        "solved",
        lambda width: _solved_chart(solved, width),
        "Share of starts from which each stack fits the polynomial, with Wilson 95 % intervals.",
    )
    return Finding(
        "solving",
        "Polynomials solved by second-order optimisation",
        sentences,
        (chart,),
        (_shares(solved),),
    )


def _ordered(solved: "pd.DataFrame") -> "pd.DataFrame":
    return solved.sort_values(["k", "rung"], ascending=[False, True], kind="stable")


def _shares(solved: "pd.DataFrame") -> Table:
    heads = (
        Head("Teacher", kind="tight"),
        Head("Stack", kind="tight"),
        Head("Degrees", kind="tight"),
        Head("N", "parameters", "num"),
        Head("Solved", "95 % interval", "num"),
        Head("Starts", kind="num"),
    )
    rows = []
    for row in _ordered(solved).to_dict("records"):
        share = Estimate(row["solved"], lo=row["solved_lo"], hi=row["solved_hi"])
        rows.append(
            (
                Cell(str(row["target"]), kind="tight"),
                Cell(str(row["family"]), kind="tight"),
                Cell(str(row["shape"]), kind="tight"),
                number(row["N"], fmt.count),
                estimate(share, lambda x: f"{x:.2f}"),
                Cell(f"{row['seeds']:.0f}", kind="num"),
            )
        )
    return Table("Share of starts that solve the polynomial", heads, tuple(rows))


def _solved_chart(solved: "pd.DataFrame", width: int) -> Spec:
    import pandas as pd

    solved = _ordered(solved)
    data = pd.DataFrame(
        {
            "name": [f"{r.target}: {r.family}" for r in solved.itertuples()],
            "share": solved["solved"],
            "lo": solved["solved_lo"],
            "hi": solved["solved_hi"],
            "tooltip": [f"{r.target}, {r.family}: {r.solved:.2f}" for r in solved.itertuples()],
            "of": solved["target"],
        }
    )
    names, teachers = list(data["name"]), list(dict.fromkeys(data["of"]))
    colour = {"field": "of", "type": "nominal", "legend": None}
    hues = [LIGHT[theme.FAMILY_COLOURS[i]] for i in range(len(teachers))]
    colour |= {"scale": {"domain": teachers, "range": hues}}
    x = {
        "field": "share",
        "type": "quantitative",
        "scale": {"domain": [-0.02, 1.02], "nice": False},
    }
    x |= {"axis": {"title": "Share of starts", "format": "%", "values": [0, 0.25, 0.5, 0.75, 1]}}
    axis = {"title": None, "grid": False, "labelLimit": 260}
    y = {"field": "name", "type": "nominal", "sort": names, "axis": axis}
    rule = {"strokeWidth": 2.5, "aria": False}
    dot = {"filled": True, "size": 80, "opacity": 1}
    marks = [
        layer(data, "rule", rule, x=x | {"field": "lo"}, x2="hi", y=y, color=colour),
        layer(data, "point", dot, x=x, y=y, color=colour, tooltip="tooltip"),
    ]
    return theme.styled(marks, "Solved", width, 28 * len(names) + 60)
