import json
import sys

import numpy as np
import pytest

from allometry.cli import main


@pytest.fixture
def typed(monkeypatch, capsys):
    def type_in(*arguments):
        monkeypatch.setattr(sys, "argv", ["allometry", "measure", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
        told = capsys.readouterr()
        return left.value.code or 0, told.out, told.err

    return type_in


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=200)
    np.save(tmp_path / "real.npy", rng.normal(size=(200, 4)) + 4 * np.eye(4)[labels])
    np.save(tmp_path / "samples.npy", rng.normal(size=(150, 4)) + 4 * np.eye(4)[labels[:150]])
    np.save(tmp_path / "rival.npy", rng.normal(size=(150, 4)))
    np.savetxt(tmp_path / "labels.csv", labels)
    return tmp_path


def test_json_has_the_shape_others_rely_on(typed, files):
    code, out, err = typed(
        files / "real.npy",
        files / "samples.npy",
        *("--labels", files / "labels.csv", "--rival", files / "rival.npy"),
        *("--only", "frechet", "--only", "precision", "--only", "tournament", "--json"),
    )
    assert code == 0, err
    data = json.loads(out)
    assert {"frechet_distance", "frechet_distance_infinity", "precision"} <= set(data)
    for values in data.values():
        assert {"value", "se", "lo", "hi", "features"} <= set(values)
        assert values["features"] == "identity"


def test_a_table_for_people(typed, files):
    code, out, _ = typed(
        files / "real.npy", files / "samples.npy", "--features", "pca:2", "--only", "mmd2"
    )
    assert code == 0
    assert "mmd2_rbf" in out
    assert "pca(2)" in out


def test_what_was_left_out_goes_to_standard_error(typed, files):
    code, out, err = typed(files / "real.npy", files / "samples.npy", "--only", "inception")
    assert code == 0
    assert "inception_score was left out: needs labels" in err
    assert "left out" not in out


def test_an_audit(typed):
    code, out, err = typed("--audit", "--only", "authenticity")
    assert code == 0, err
    assert "memorise" in out
    assert "authenticity" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["real.npy"], "SAMPLES must be given beside REAL"),
        (["real.npy", "nowhere.npy"], "must be a file that exists"),
        (["real.npy", "narrow.npy"], "SAMPLES must have 4 features like real; got 3"),
        (["real.npy", "samples.npy", "--features", "x"], "features must be identity"),
    ],
)
def test_mistakes_are_one_sentence_and_exit_2(typed, files, monkeypatch, arguments, words):
    monkeypatch.chdir(files)
    np.save("narrow.npy", np.ones((9, 3)))
    code, out, err = typed(*arguments)
    assert code == 2
    assert out == ""
    assert words in " ".join(err.split())
