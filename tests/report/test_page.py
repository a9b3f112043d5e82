import base64
import dataclasses
import hashlib
import re
import time
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

import allometry as al
from allometry import InputError
from allometry._core.errors import StorageError
from allometry.report import page, page_template, write
from allometry.report.sections import results
from tests.report.synthetic import analysis, synthetic_runs

HOSTILE = """<img src=x onerror=alert(1)>"'&</title></pre></style><script>alert(2)</script>"""


class Reader(HTMLParser):
    """Every element with its attributes, and the text that a reader sees."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.seen = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.seen.append(data)

    @property
    def text(self):
        return " ".join("".join(self.seen).split())


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    return write(folder / "deep" / "report.html", synthetic_runs(), analysis=analysis())


def hostile_runs():
    runs = synthetic_runs(name=HOSTILE)
    table = runs.table.copy()
    for column in ("shape", "error", "target"):
        table[column] = HOSTILE
    texts = dict.fromkeys(runs.texts, HOSTILE)
    about = runs.about | {"versions": {HOSTILE: HOSTILE}, "folder": HOSTILE}
    return dataclasses.replace(runs, table=table, texts=texts, about=about)


def test_the_page_has_every_part(written):
    read = Reader(written.read_text())
    ids = [attrs["id"] for tag, attrs in read.elements if tag == "section" and "id" in attrs]
    assert ids == [
        *(
            "compute",
            "planner",
            "laws",
            "units",
            "curves",
            "runs",
            "samples",
            "failed",
            "parameters",
        ),
        *("made", "cite"),
    ]
    assert read.text.count("of order 7 reaches 1.220 and is better") == 1
    assert "The two largest sizes were predicted from the smaller ones to within" in read.text
    assert "the loss became nan at step 311" in read.text
    assert "@software{allometry," in read.text
    assert "muennighoff2023" in read.text
    assert "torch 2.13.0" in re.sub(r"torch\s*2", "torch 2", read.text)


def test_the_page_is_small_and_fetches_nothing(written):
    assert written.stat().st_size < 3_000_000
    for tag, attrs in Reader(written.read_text()).elements:
        for name in ("src", "href", "xlink:href", "action", "data", "poster"):
            assert attrs.get(name, "#").startswith(("#", "data:")), (tag, attrs)
    assert "http://" not in re.sub(r'xmlns(:xlink)?="[^"]*"', "", written.read_text())
    assert "https://" not in written.read_text()
    assert "@import" not in written.read_text()


def test_the_policy_allows_only_the_pages_own_style_and_script(written):
    text = written.read_text()
    policy = next(
        attrs["content"]
        for tag, attrs in Reader(text).elements
        if attrs.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert "http" not in policy
    for tag, source in (("style", "style-src"), ("script", "script-src")):
        inside = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        assert len(inside) == 1
        digest = base64.b64encode(hashlib.sha256(inside[0].encode()).digest()).decode()
        assert f"{source} 'sha256-{digest}'" in policy


def test_what_comes_from_outside_stays_text(tmp_path):
    text = write(tmp_path / "report.html", hostile_runs()).read_text()
    read = Reader(text)
    tags = [tag for tag, _ in read.elements]
    assert "img" not in tags
    assert tags.count("script") == tags.count("style") == tags.count("title") == 1
    assert not [name for _, attrs in read.elements for name in attrs if name.startswith("on")]
    assert not [attrs for _, attrs in read.elements if "style" in attrs]
    # Once or more each: target, shapes, errors, samples, versions, folder.
    assert read.text.count("<img src=x onerror=alert(1)>") > 6
    for picture in (tmp_path / "report_charts").iterdir():
        root = ElementTree.parse(picture).getroot()
        assert not [e for e in root.iter() if e.tag.endswith(("script", "img"))]


def test_every_chart_is_a_picture_of_its_own(written):
    folder = written.parent / "report_charts"
    names = {p.name for p in folder.iterdir()}
    assert names == {
        "loss-against-compute.svg",
        "loss-against-N.svg",
        "loss-against-D.svg",
        "loss-against-C.svg",
        "learning-curves.svg",
    }
    for path in folder.iterdir():
        text = path.read_text()
        assert ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
        assert "var(--" not in text


def test_charts_on_the_page_follow_the_scheme(written):
    text = written.read_text()
    body = text[text.index("<body") : text.index("<script>")]
    pictures = re.findall(r"<svg.*?</svg>", body, re.DOTALL)
    assert len(pictures) > 5
    assert not re.search(r'(fill|stroke)="#', "".join(pictures))
    ids = re.findall(r'\bid="([^"]+)"', body)
    assert len(ids) == len(set(ids))


def pace():
    """How many times slower than usual this machine is now, by what a report mostly computes.

    0.8 ms are usual for these 61,000 numbers; shared machines take twice as long at times.
    """
    a, b = np.random.default_rng(0).normal(size=(2, 1001, 61))

    def once():
        started = time.perf_counter()
        np.logaddexp(a, b)
        return time.perf_counter() - started

    return max(1.0, min(once() for _ in range(20)) / 0.8e-3)


def test_twenty_runs_take_less_than_five_seconds(tmp_path):
    runs = synthetic_runs(seeds=3)
    assert len(runs.frame()) >= 20

    def once():
        slow = pace()
        started = time.process_time()
        write(tmp_path / "report.html", runs)
        return (time.process_time() - started) / max(slow, pace())

    # CPU time, for others may use the machine; twice, for the first time loads code.
    assert min(once() for _ in range(2)) < 5


def test_thousands_of_runs_stay_under_three_megabytes():
    sizes = tuple(np.geomspace(1e3, 1e6, 100).astype(int).tolist())
    many = synthetic_runs(sizes, per_parameter=(5.0, 20.0, 80.0, 320.0), seeds=3)
    assert len(many.frame()) == 1206
    many = dataclasses.replace(many, texts=dict.fromkeys(many.table["key"], "word " * 5000))
    # The analysis of few runs stands in: fitting thousands takes a while and adds no bytes.
    few = dataclasses.replace(analysis(), total=len(many.frame()))
    text, charts = page.render(many, few)
    assert len(text.encode()) < 3_000_000
    assert "Failed runs and the best others, 1000 of 1206 runs" in text
    assert max(len(picture) for picture in charts.values()) < 1_000_000


@pytest.mark.parametrize(
    "arguments",
    [
        {"sizes": (), "ngram": None},
        {"sizes": ()},
        {"sizes": (1000,)},
        {"sizes": (1000,), "ngram": None, "seeds": 1},
        {"sizes": (1000, 9000)},
        {"sizes": (1000, 9000, 81_000), "ngram": None},
        {"per_parameter": (5.0, 20.0), "seeds": 1},
        {"ngram": 0.2},
    ],
)
def test_any_study_gives_a_page(arguments, tmp_path):
    path = write(
        tmp_path / "report.html", synthetic_runs(**arguments), analysis=analysis(**arguments)
    )
    read = Reader(path.read_text())
    assert analysis(**arguments).headline.split(".")[0] in read.text.replace("\u00a0", " ")


def test_every_family_has_its_panels(tmp_path):
    arguments: dict[str, Any] = {"families": ("gru", "transformer", "odd/name <b>")}
    path = write(
        tmp_path / "report.html", synthetic_runs(**arguments), analysis=analysis(**arguments)
    )
    names = {p.stem for p in (tmp_path / "report_charts").iterdir()}
    assert {"loss-against-N", "loss-against-N-2-transformer"} < names
    assert "loss-against-N-3-odd-name-b-" in names
    read = Reader(path.read_text())
    assert read.text.count("Odd/name <b>") > 1
    assert "The best run of each family, lowest loss first" in read.text
    hero = (tmp_path / "report_charts" / "loss-against-compute.svg").read_text()
    for name in ("GRU", "transformer", "odd/name &lt;b&gt;"):
        assert f">{name}</text>" in hero


def test_constant_data_is_said_not_drawn(tmp_path):
    runs = synthetic_runs(broken=False)
    table = runs.table.assign(D=1e6)
    path = write(tmp_path / "report.html", dataclasses.replace(runs, table=table))
    assert "Loss against D is not drawn" in path.read_text()


def test_a_page_must_be_html(tmp_path):
    with pytest.raises(InputError, match=r"write\.path must end in \.html"):
        write(tmp_path / "report.pdf", synthetic_runs(), analysis=analysis())


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match="Can't make the folder"):
        write(tmp_path / "file" / "report.html", synthetic_runs(), analysis=analysis())


def test_an_old_page_survives_a_failure(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("old")

    def broken(*_):
        raise RuntimeError("no")

    monkeypatch.setattr(page, "facts", broken)
    with pytest.raises(RuntimeError):
        write(path, synthetic_runs(), analysis=analysis())
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_a_real_study_can_be_reported_while_it_runs(tmp_path):
    text = tmp_path / "notes.txt"
    text.write_text("the quick brown fox jumps over the lazy dog; " * 400)
    study = al.study.Study(al.targets.Text(text), [al.study.recipes.ngram], ladder=[1000])
    runs = study.run(tmp_path / "runs", executor=al.study.local(workers=1))
    journal = tmp_path / "runs" / "journal.jsonl"
    # What a study at work leaves behind: a last line not yet whole.
    journal.write_bytes(journal.read_bytes()[:-40])
    read = Reader(write(tmp_path / "report.html", runs).read_text())
    assert "On notes, the best n-gram of order" in read.text


def test_what_several_families_are_warned_of_is_said_once():
    said = ["Too far (40 times): no.", "Other (a).", "Too far (50 times): no.", "Other (a)."]
    assert results.without_repeats(said) == ["Too far: no.", "Other (a)."]


def test_a_target_of_several_names_each(tmp_path):
    runs = synthetic_runs()
    parts = [
        {"name": n, "rows": {"train": 90}, "fingerprint": n[0] * 64} for n in ("text", "digits")
    ]
    about = runs.about | {"target": {"target": "domains", "domains": parts}}
    text = write(tmp_path / "r.html", dataclasses.replace(runs, about=about)).read_text()
    assert "text (tttttttt), digits (dddddddd)" in Reader(text).text


@pytest.mark.parametrize(
    ("equation", "shown"),
    [
        ("L = E + A/N^α", "L = E + A/N<sup>α</sup>"),
        (
            "((N_c/N)^(α_N/α_D) + D_c/D)^α_D",
            "((N<sub>c</sub>/N)<sup>α<sub>N</sub>/α<sub>D</sub>"
            "</sup> + D<sub>c</sub>/D)<sup>α<sub>D</sub></sup>",
        ),
        ("β (N^-1 + γ)^c", "β (N<sup>-1</sup> + γ)<sup>c</sup>"),
        ("<b>^2", "&lt;b&gt;<sup>2</sup>"),
    ],
)
def test_equations_have_exponents_and_indices(equation, shown):
    assert page_template.raised(equation) == shown


def test_at_most_three_boxes_and_the_rest_is_folded(tmp_path):
    runs = synthetic_runs(sizes=(1000, 3000, 9000, 27_000), seeds=1, families=("gru", "lstm"))
    page = write(tmp_path / "report.html", runs).read_text()
    boxes = page.split('<ul class="notes">')[1].split("</ul>")[0]
    assert boxes.count("<li>") == 3
    assert 'class="warning"' not in page
    assert "<summary>More notes (" in page
