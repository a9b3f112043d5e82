"""`allometry compare` on one table, on a file per recipe, and on mistakes."""

import csv
import json

import pytest

from tests.laws.test_compare_recipes import ladder, rows_of


def write(path, frame):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(frame)
        writer.writerows(zip(*(column.tolist() for column in frame.values()), strict=True))


@pytest.fixture
def runs(tmp_path):
    frame = ladder()
    write(tmp_path / "runs.csv", frame)
    for name in ("A", "B"):
        write(
            tmp_path / f"{name}.csv",
            {k: v for k, v in rows_of(frame, frame["recipe"] == name).items() if k != "recipe"},
        )
    return tmp_path


def test_one_table_and_a_file_per_recipe_agree(runs, typed):
    table = typed("compare", "runs.csv", "--by", "recipe", "--at", "1e21", "--json", cwd=runs)
    files = typed("compare", "A.csv", "B.csv", "--at", "1e21", "--json", cwd=runs)
    assert table.returncode == files.returncode == 0, table.stderr + files.stderr
    assert json.loads(table.stdout) == json.loads(files.stdout)
    found = json.loads(table.stdout)
    assert found["winner"] == "B"
    assert found["multiplier"]["lo"] < 1.5 < found["multiplier"]["hi"]
    assert {"trend", "verdict", "rivals", "warnings", "measured", "e_value"} <= set(found)


def test_the_page_and_the_table(runs, typed):
    done = typed("compare", "runs.csv", "--report", "page.html", cwd=runs)
    assert done.returncode == 0, done.stderr
    assert "B wins at 1e+20 FLOP against A" in done.stdout
    page = (runs / "page.html").read_text()
    assert page.count("<figure>") == 2
    assert page.count("class=narrow") == 2
    assert "color-scheme:light dark" in page
    assert "http-equiv" in page


def test_the_only_column_of_words_is_the_recipe(runs, typed):
    text = (runs / "runs.csv").read_text()
    header, *lines = text.splitlines()
    (runs / "named.csv").write_text("\n".join([header.replace("recipe", "optimizer"), *lines]))
    done = typed("compare", "named.csv", cwd=runs)
    assert done.returncode == 0, done.stderr
    assert "Recipes from 'optimizer': A, B." in done.stderr
    assert "fitted together" not in done.stderr
    assert "B wins" in done.stdout
    more = [f"{header},size", *(f"{line},{'ab'[i % 2]}" for i, line in enumerate(lines))]
    (runs / "two.csv").write_text("\n".join(more).replace("recipe", "optimizer"))
    done = typed("compare", "two.csv", cwd=runs)
    assert done.returncode == 2
    assert "which has no column 'recipe'. Columns with a few words: " in done.stderr


def test_true_and_false_are_named_by_their_column(runs, typed):
    header, *lines = (runs / "runs.csv").read_text().splitlines()
    place = header.split(",").index("recipe")
    rows = [line.split(",") for line in lines]
    for row in rows:
        row[place] = str(row[place] == "B")
    table = [header.replace("recipe", "use_muon"), *(",".join(row) for row in rows)]
    (runs / "flags.csv").write_text("\n".join(table))
    done = typed("compare", "flags.csv", "--by", "use_muon", cwd=runs)
    assert "use_muon=True wins" in done.stdout, done.stderr


def test_mistakes(runs, typed):
    done = typed("compare", "runs.csv", "--by", "optimizer", cwd=runs)
    assert done.returncode == 2
    assert "--by must be the recipe's column of runs.csv; got 'optimizer'" in done.stderr
    done = typed("compare", "runs.csv", "--by", "Recipe", cwd=runs)
    assert "Did you mean recipe?" in done.stderr
    assert typed("compare", "A.csv", "A.csv", cwd=runs).returncode == 2
    assert typed("compare", "A.csv", cwd=runs).returncode == 2
    done = typed("compare", "a.py:study", "b.py:study", cwd=runs)
    assert "without --run; got 'a.py:study'. Give --run to run studies." in done.stderr
