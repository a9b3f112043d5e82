"""Diagrams draw what they are given, and name what is wrong."""

import pytest

import allometry as al
from allometry.course import charts, diagrams


def test_a_graph_shows_every_label():
    figure = diagrams.graph(
        {"z": (0, 1), "x": (0, 0)},
        [("z", "x")],
        labels={"x": "observed\nvalue"},
        shaded=["x"],
        plates={"N = 3": ["z", "x"]},
        circles=True,
    )
    text = figure.svg()
    assert all(f">{label}<" in text for label in ("z", "observed", "value", "N = 3"))
    with pytest.raises(al.InputError, match="join known nodes"):
        diagrams.graph({"z": (0, 1)}, [("z", "y")])


def test_cells_of_a_matrix_are_as_dark_as_their_values():
    figure = diagrams.matrix({"a": {"p": 2.0, "q": -1.0}, "b": {"p": float("nan"), "q": 0.0}})
    cells = figure.spec["layer"][0]["data"]["values"]
    assert [c["shade"] for c in cells] == pytest.approx([0.55, 0.275, 0, 0])
    assert [c["text"] for c in cells] == ["2", "-1", "", "0"]


def test_panels_keep_one_legend_for_each_group_of_points():
    groups = {str(i): [[i, 0.0], [0.0, i]] for i in range(3)}
    one = charts.scatter(groups)
    text = charts.panels({"left": one, "right": one}).svg()
    # Each panel names every group once: a second set would belong to another scale.
    assert [text.count(f">{i}</text>") for i in ("left", "right")] == [1, 1]
    assert text.count('class="mark-symbol role-legend-symbol"') == 6


def test_a_tree_is_drawn_with_leaves_in_order():
    from allometry.targets import Grammar

    parse = Grammar("S -> 'a' S 'b' | 'c' 'd'").parse("acdb")
    values = diagrams.tree(parse).spec["layer"]
    shown = [(v["x"], v["t"]) for each in values for v in each["data"]["values"] if "t" in v]
    leaves = [t for _, t in sorted(shown) if t != "S"]
    assert leaves == ["a", "c", "d", "b"]
    assert sum(t == "S" for _, t in shown) == 2


def test_a_forest_has_a_row_and_an_interval_for_each_estimate():
    from allometry.course.forest import forest

    rows = {"a": {"one": al.Estimate(1.0, lo=0.5, hi=2.0), "two": al.Estimate(3.0)}}
    bars = forest(rows, x="value", at={"truth": 1.5}).spec["layer"][2]["data"]["values"]
    assert [(b["label"], b["x"], b["x2"]) for b in bars] == [("one", 0.5, 2.0), ("two", 3.0, 3.0)]
    with pytest.raises(al.InputError, match="different labels"):
        forest({"a": rows["a"], "b": rows["a"]}, x="value")
