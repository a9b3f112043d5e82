"""`allometry run JOB --all`."""

import json
import random

import pytest

from tests.cli.test_cli import allometry

COMMAND = (
    *("run", "moons", "--all", "--family", "affine_coupling", "--family", "gan", "--json"),
    *(
        "--flops",
        "8e9",
        "--rungs",
        "3",
        "--seeds",
        "2",
        "--workers",
        "1",
        "--threads",
        "1",
        "--folder",
        "moons",
    ),
)


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("families")
    done = allometry(*COMMAND, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


def test_the_answer_names_a_family_at_each_budget(compared):
    _, answer = compared
    assert set(answer["distance"]["families"]) == {"affine coupling", "GAN"}
    budgets = answer["distance"]["budgets"]
    assert budgets[0]["multiple"] == 1
    assert all(sum(b["probabilities"].values()) == pytest.approx(1) for b in budgets)
    assert any("sliced Wasserstein distance" in s for s in answer["answer"])


def test_the_page_has_charts_measures_and_samples(compared):
    folder, _ = compared
    page = (folder / "moons" / "families.html").read_text()
    for part in ("Which family for moons?", "precision", "copying", "data:image/png", "<svg"):
        assert part in page
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_the_same_command_repeats_nothing(compared):
    folder, answer = compared
    files = [*folder.glob("moons/*/journal.jsonl"), *folder.glob("moons/*/measures/*.json")]
    stamps = {path: path.stat().st_mtime_ns for path in files}
    assert len(stamps) == 2 + 12
    again = allometry(*COMMAND, cwd=folder)
    assert json.loads(again.stdout) == answer
    assert {path: path.stat().st_mtime_ns for path in files} == stamps


def test_what_would_be_ignored_is_refused(typed, tmp_path):
    wrong = {
        ("moons", "--largest", "1e5"): "--all must be given without these options",
        ("dyck",): "JOB must be a text or a density with --all",
        ("moons", "--family", "transformer"): "family must be one of",
    }
    for arguments, words in wrong.items():
        refused = typed("run", *arguments, "--all", cwd=tmp_path)
        assert refused.returncode == 2
        assert words in refused.stderr
        assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    rng = random.Random(0)
    words = ("tale", "told", "by", "an", "idiot", "full", "of", "sound", "fury", "signifying")
    text = " ".join(rng.choice(words) for _ in range(6000))
    (folder / "words.txt").write_text(text)
    done = allometry(
        *("run", "words.txt", "--all", "--family", "mlp", "--family", "rnn"),
        *("--flops", "4e9", "--rungs", "3", "--seeds", "1", "--json"),
        *("--context", "16", "--workers", "1", "--threads", "1", "--folder", "runs"),
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


def test_texts_have_measures_of_samples_too(texts):
    folder, answer = texts
    assert set(answer["distance"]["families"]) == {"mlp", "rnn"}
    assert set(answer["likelihood"]["families"]) == {"mlp", "rnn"}
    page = (folder / "runs" / "families.html").read_text()
    for part in ("frequent 2- to 4-grams", "exact", "copying", '<pre class="excerpt">'):
        assert part in page
