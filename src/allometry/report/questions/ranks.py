"""Which degree has the largest separation rank at one budget, and the source of a Mixer's rank."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from allometry._core.estimate import Estimate
from allometry.report import formatting as fmt
from allometry.report import theme
from allometry.report.cells import Cell, Head, Table, estimate, number, whole
from allometry.report.content import Chart
from allometry.report.questions.findings import Answer, Finding
from allometry.report.theme import LIGHT, Spec, layer

if TYPE_CHECKING:
    import pandas as pd


def rank(done: "pd.DataFrame") -> Answer:
    """The answer to `allometry run rank`."""
    # The package of models imports torch.
    from allometry.models.polynomial_degree import best_words

    real = _stacks(done[done["part"] == "stack"])
    done = done[done["part"] == "rank"]
    if done.empty:
        return Answer("No rank has been measured yet, so there is no answer.", (), real)
    most = int(done["forms"].max())
    peaks = {
        str(family): _peak(rows)
        for family, rows in done[done["forms"] == most].groupby("family", sort=False)
    }
    three = [f for f, best in peaks.items() if best == [3]]
    other = [f"{f} ({_degrees(best)})" for f, best in peaks.items() if best != [3]]
    verdict = f"At {most} linear forms per unit the separation rank is largest at degree 3 for "
    verdict += fmt.listed(three) if three else "none of the architectures"
    verdict += f", but not for {fmt.listed(other)}: the answer depends on the architecture."
    if not other:
        verdict = (
            f"At {most} linear forms per unit the separation rank is largest at degree 3 in "
            "every architecture."
        )
    sentences = (
        "Ranks are exact for weights in general position: the rank, modulo two primes, of the "
        "matrix of values at random points, which grows until its rank is below its size. The "
        "bound is the largest rank of any polynomial of that degree.",
        "The budget is the number of linear forms, L d. Attention also has an output matrix, so "
        "the number of parameters N differs at equal L d.",
    )
    chart = Chart(
        "rank-against-degree",
        lambda width: _rank_chart(done[done["forms"] == most], most, width),
        f"Separation rank against the degree of a layer at L d = {most}, for weights in general "
        "position.",
    )
    finding = Finding("ranks", "Rank against degree", sentences, (chart,), (_rank_table(done),))
    price = Finding("price", "Cost of a layer", best_words(-1, 0, 1))
    return Answer(verdict, (), (finding, *real, price))


def _stacks(rows: "pd.DataFrame") -> tuple[Finding, ...]:
    """Epsilon-ranks of the stacks of `allometry run degree`."""
    if rows.empty:
        return ()
    sentences = (
        "Signed powers, and stacks with norms between their layers, have infinite separation "
        "rank; only their epsilon-rank is finite. The epsilon-rank is the least rank within a "
        "relative distance (d_2) of epsilon. The table has it at 0.1 and 0.01 for the stacks of "
        "`allometry run degree` at initialisation: eight inputs, four on each side, 256 x 256 "
        "random points, medians over nine draws with 95 % intervals.",
    )
    heads = (
        Head("Stack", kind="tight"),
        Head("Degrees", kind="tight"),
        Head("N", "parameters", "num"),
        Head("Epsilon 0.1", "95 % interval", "num"),
        Head("Epsilon 0.01", "95 % interval", "num"),
    )
    cells = tuple(
        (
            Cell(str(row["family"]), kind="tight"),
            Cell(str(row["shape"]), kind="tight"),
            number(row["N"], fmt.count),
            *(
                estimate(Estimate(row[f"{k}_rank"], lo=row[f"{k}_lo"], hi=row[f"{k}_hi"]), whole)
                for k in ("epsilon", "near")
            ),
        )
        for row in rows.sort_values("rung").to_dict("records")
    )
    table = Table("Epsilon-ranks at one budget", heads, cells)
    return (Finding("stacks", "Real degrees", sentences, (), (table,)),)


def _peak(rows: "pd.DataFrame") -> list[int]:
    """The degrees of the largest rank, among stacks of one degree."""
    rows = rows[rows["degree"].notna()]
    if rows.empty:
        return []
    best = rows["rank"].max()
    return sorted(int(d) for d in rows[rows["rank"] == best]["degree"])


def _degrees(best: list[int]) -> str:
    return f"largest at {fmt.listed([str(d) for d in best])}"


def _rank_table(done: "pd.DataFrame") -> Table:
    heads = (
        Head("Network", kind="tight"),
        Head("Layers", kind="tight"),
        Head("L d", kind="num"),
        Head("N", "parameters", "num"),
        Head("Rank", kind="num"),
        Head("Bound", "of its degree", "num"),
        Head("Method", minor=True),
    )
    rows = tuple(
        (
            Cell(str(row["family"]), kind="tight"),
            Cell(str(row["shape"]), kind="tight"),
            number(row["forms"], lambda x: f"{x:.0f}"),
            number(row["N"], fmt.count),
            _rank(row),
            number(row["bound"], whole),
            Cell(_how(str(row["method"])), kind="tight"),
        )
        for row in done.sort_values(["family", "forms", "rung"], kind="stable").to_dict("records")
    )
    return Table("All measured ranks", heads, rows)


def _rank(row: Mapping[Any, Any]) -> Cell:
    value = row["rank"]
    if value is None or math.isnan(value):
        return Cell("none", order="", kind="num")
    return Cell(whole(value) if row["exact"] else f"at least {whole(value)}", order=float(value),
                kind="num")  # fmt: skip


def _how(method: str) -> str:
    """The method in short form; the journal names the primes."""
    primes, _, points = method.partition(" at ")
    if points:
        return f"{primes.count(',') + 1} primes, {points}"
    return "no polynomial" if method.startswith("no polynomial") else method


def _lines(
    data: "pd.DataFrame", x: str, title: str, values: list[float], what: str, width: int
) -> Spec:
    """Rank against x, one line per family; `data` has family, x, rank and tooltip."""
    names = list(dict.fromkeys(data["family"]))
    field = {"field": "family", "type": "nominal", "sort": names}
    field |= {"legend": {"title": None, "columns": 2 if width > 500 else 1, "labelLimit": 330}}
    field["legend"] |= {"columnPadding": 50, "symbolStrokeWidth": 0, "symbolDash": [1, 0]}
    palette = (*theme.FAMILY_COLOURS, theme.COUNT_COLOUR)
    hues = [LIGHT[palette[i % len(palette)]] for i in range(len(names))]
    colour = field | {"scale": {"domain": names, "range": hues}}
    signs = [theme.SHAPES[i % len(theme.SHAPES)] for i in range(len(names))]
    shape = field | {"scale": {"domain": names, "range": signs}}
    # Lines may coincide: a dashed line lets the one below show through.
    dashes = [theme.DASHES[i % len(theme.DASHES)] for i in range(len(names))]
    dash = field | {"scale": {"domain": names, "range": dashes}, "legend": None}
    across = {"field": x, "type": "quantitative", "axis": {"title": title, "values": values}}
    across |= {"scale": {"domain": [min(values) - 0.3, max(values) + 0.3], "nice": False}}
    up = theme.log_axis("rank", *theme.extent(data["rank"], 0.06), fmt.count, None)
    dot = {"filled": True, "size": 80, "opacity": 1}
    line = {"strokeWidth": 2, "aria": False}
    marks = [
        layer(data, "line", line, x=across, y=up, color=colour, strokeDash=dash),
        layer(data, "point", dot, x=across, y=up, color=colour, shape=shape, tooltip="tooltip"),
    ]
    legend = 22 * (math.ceil(len(names) / 2) if width > 500 else len(names))
    return theme.styled(marks, what, width, round(width * (0.42 if width > 500 else 0.8)) + legend)


def _with_tooltips(data: "pd.DataFrame", x: str) -> "pd.DataFrame":
    rows = data.to_dict("records")
    tooltips = [f"{r['family']}, {r['shape']}: rank {r['rank']:,.0f}" for r in rows]
    return data[["family", x, "rank"]].assign(tooltip=tooltips)


def _rank_chart(done: "pd.DataFrame", forms: int, width: int) -> Spec:
    data = done[done["degree"].notna()].sort_values("degree")
    data = _with_tooltips(data, "degree")
    values = sorted(data["degree"].unique().tolist())
    title = "Degree of a layer"
    return _lines(data, "degree", title, values, f"Separation rank at L d = {forms}", width)


def mixer(done: "pd.DataFrame") -> Answer:
    """The answer to `allometry run mixer`."""
    import pandas as pd

    by = {str(form): rows.sort_values("layers") for form, rows in done.groupby("form", sort=False)}
    sentences = []
    if "linear" in by:
        values = fmt.listed([str(r) for r in sorted({int(r) for r in by["linear"]["rank"]})])
        depths = fmt.listed([f"{d:.0f}" for d in by["linear"]["layers"]])
        sentences.append(
            f"Without an activation a Mixer has separation rank {values} at {depths} layers: it "
            "only adds the two sides."
        )
    powers = [f for f in ("quadratic", "cubic") if f in by]
    if powers:
        rows = pd.concat([by[f] for f in powers])
        top = max(rows.to_dict("records"), key=lambda row: row["rank"])
        sentences.append(
            f"With powers as activations it reaches {top['rank']:,.0f} at "
            f"{fmt.several(int(top['layers']), 'layer')}, where a polynomial of its degree can "
            f"have at most {top['bound']:,.0f}."
        )
    if "linear" in by and powers:
        sentences.append(
            "The rank comes from the degree and from unshared token mixing; attention is not "
            "special."
        )
    verdict = " ".join(sentences) or "Only other networks were measured."
    lead = (
        "Four tokens of size 2, two on each side; the output is read at the first token. Ranks "
        "of polynomials are exact, for weights in general position. GELU is not a polynomial and "
        "has only an epsilon-rank: the least rank within a relative distance of 0.01 (d_2) at "
        "256 x 256 random points, the median of nine random initialisations with its 95 % "
        "interval.",
    )
    chart = Chart(
        "rank-against-depth",
        lambda width: _mixer_chart(done, width),
        "Separation rank against depth. The Mixer with GELU has an epsilon-rank only; see the "
        "table.",
    )
    finding = Finding("mixers", "Rank against depth", lead, (chart,), (_mixer_table(done),))
    return Answer(verdict, (), (finding,))


def _mixer_chart(done: "pd.DataFrame", width: int) -> Spec | None:
    data = done[done["rank"].notna()].sort_values("layers")
    if data.empty:
        return None
    data = _with_tooltips(data, "layers")
    values = sorted(data["layers"].unique().tolist())
    return _lines(data, "layers", "Layers", values, "Separation rank", width)


def _mixer_table(done: "pd.DataFrame") -> Table:
    heads = (
        Head("Network", kind="tight"),
        Head("Layers", kind="num"),
        Head("N", "parameters", "num"),
        Head("Rank", kind="num"),
        Head("Bound", "of its degree", "num"),
        Head("Epsilon-rank", "95 % interval", "num"),
        Head("Method", minor=True),
    )
    rows = tuple(
        (
            Cell(str(row["family"]), kind="tight"),
            number(row["layers"], lambda x: f"{x:.0f}"),
            number(row["N"], fmt.count),
            _rank(row),
            number(row["bound"], whole),
            estimate(
                Estimate(row["epsilon_rank"], lo=row["epsilon_lo"], hi=row["epsilon_hi"]), whole
            ),
            Cell(_how(str(row["method"])), kind="tight"),
        )
        for row in done.sort_values(["family", "layers"], kind="stable").to_dict("records")
    )
    return Table("All measured ranks", heads, rows)
