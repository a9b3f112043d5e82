"""How large are built and trained networks for the same task, and how long do they stay right?"""

from typing import TYPE_CHECKING, Any

from allometry.report import formatting as fmt
from allometry.report import theme
from allometry.report.cells import Cell, Head, Table, number, whole
from allometry.report.content import Chart
from allometry.report.questions.findings import Answer, Finding
from allometry.report.theme import LIGHT, Spec, layer

if TYPE_CHECKING:
    import pandas as pd

BUILT, REACHED, MISSED = "built", "trained, right at its length", "trained, none was right"
_LOOKS = {BUILT: ("c1", "square"), REACHED: ("c2", "circle"), MISSED: ("c4", "triangle-up")}


def built_against_trained(done: "pd.DataFrame") -> Answer:
    """The answer to `allometry run built-against-trained`."""
    tasks = _tasks(done)
    if not tasks:
        return Answer("No construction has been checked yet, so there is no answer.", (), ())
    trained = [t for t in tasks if t["trained"] is not None]
    reached = [t for t in trained if t["reached"]]
    lengths = tasks[0]["built"]["lengths"]
    sizes = [int(t["built"]["N"]) for t in tasks]
    wrong = [t["task"] for t in tasks if min(t["built"]["accuracy"]) < 1]
    verdict = (
        f"Built networks of {fmt.count(min(sizes))} to {fmt.count(max(sizes))} parameters are "
        f"right at every tested length, up to {lengths[-1]}."
    )
    if wrong:
        verdict = f"Built networks were wrong on {fmt.listed(wrong)}."
    if trained:
        still = [t["task"] for t in reached if t["trained"]["accuracy"][-1] >= 0.999]
        verdict += (
            f" Training at length {lengths[0]} found a network that is right on 99.9 % of words "
            f"in {len(reached)} of {len(trained)} tasks; at length {lengths[-1]} "
            f"{fmt.listed(still) if still else 'none'} of these stayed right."
        )
    words = (
        "A word counts as right if every position is. Built networks are compiled programs, for "
        "all tested lengths. Trained networks are transformers with rotary positions of several "
        "sizes; the table has the smallest one that reached 99.9 % at its training length, or the "
        "most accurate one if none did.",
        "A larger training budget, other positions or a scratchpad may find smaller networks: "
        "their sizes are upper bounds of what training can do. Lower bounds are numbers of "
        "attention layers.",
    )
    chart = Chart(
        "built-against-trained",
        lambda width: _chart(tasks, width),
        "Parameters of the built network and of the smallest trained one for each task.",
    )
    tables = (_table(tasks), _bounds(tasks))
    return Answer(verdict, (), (Finding("sizes", "Sizes", words, (chart,), tables),))


def _tasks(done: "pd.DataFrame") -> list[dict[str, Any]]:
    """For each task its built network, the chosen trained one and whether it reached the goal."""
    found = []
    for task, rows in done.groupby("target", sort=False):
        built = rows[rows["part"] == "built"].to_dict("records")
        if not built:
            continue
        runs = rows[rows["part"] == "trained"].to_dict("records")
        good = [r for r in runs if r["accuracy"][0] >= 0.999]
        chosen = min(good, key=lambda r: r["N"]) if good else None
        if runs and chosen is None:
            chosen = max(runs, key=lambda r: r["accuracy"][0])
        record = {"task": str(task), "built": built[0], "trained": chosen, "reached": bool(good)}
        found.append(record)
    return found


def _chart(tasks: list[dict[str, Any]], width: int) -> Spec:
    import pandas as pd

    rows = []
    for t in tasks:
        rows.append({"task": t["task"], "kind": BUILT, "N": t["built"]["N"]})
        if t["trained"] is not None:
            kind = REACHED if t["reached"] else MISSED
            rows.append({"task": t["task"], "kind": kind, "N": t["trained"]["N"]})
    data = pd.DataFrame(rows)
    data["tooltip"] = [f"{r['task']}, {r['kind']}: {r['N']:,.0f} parameters" for r in rows]
    kinds = [k for k in _LOOKS if k in set(data["kind"])]
    field = {"field": "kind", "type": "nominal", "sort": kinds, "legend": {"title": None}}
    colours = {"domain": kinds, "range": [LIGHT[_LOOKS[k][0]] for k in kinds]}
    shapes = {"domain": kinds, "range": [_LOOKS[k][1] for k in kinds]}
    names = [t["task"] for t in tasks]
    up = {"field": "task", "type": "nominal", "sort": names, "axis": {"title": None, "grid": True}}
    across = theme.log_axis("N", *theme.extent(data["N"], 0.08), fmt.count, "Parameters")
    dot = {"filled": True, "size": 110, "opacity": 1}
    marks = [
        layer(data, "point", dot, x=across, y=up, color=field | {"scale": colours},
              shape=field | {"scale": shapes}, tooltip="tooltip")
    ]  # fmt: skip
    return theme.styled(marks, "Task", width, 90 + 30 * len(names))


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"


def _table(tasks: list[dict[str, Any]]) -> Table:
    lengths = tasks[0]["built"]["lengths"]
    heads = (
        Head("Task", kind="tight"),
        Head("Built", "parameters", "num"),
        Head("Layers", kind="num"),
        Head("Trained", "parameters", "num"),
        Head("Layers", kind="num"),
        *(Head(f"Right at {n}", "trained", "num") for n in lengths),
    )
    rows = []
    for t in tasks:
        run = t["trained"]
        own = (Cell(t["task"], kind="tight"), number(t["built"]["N"], fmt.count))
        own = (*own, number(t["built"]["layers"], whole))
        if run is None:
            rows.append((*own, *(Cell("not run", order="", kind="num") for _ in range(5))))
            continue
        text = fmt.count(run["N"]) + ("" if t["reached"] else " (not reached)")
        cells = (Cell(text, order=float(run["N"]), kind="num"), number(run["layers"], whole))
        rows.append((*own, *cells, *(number(a, _share) for a in run["accuracy"])))
    return Table("Built and trained networks", heads, tuple(rows))


def _bounds(tasks: list[dict[str, Any]]) -> Table:
    heads = (
        Head("Task", kind="tight"),
        Head("At least", "attention layers", "num"),
        Head("Reason"),
    )
    rows = tuple(
        (Cell(t["task"], kind="tight"), number(t["built"]["bound"], whole),
         Cell(str(t["built"]["reason"])))
        for t in tasks
    )  # fmt: skip
    return Table("Lower bounds", heads, rows)
