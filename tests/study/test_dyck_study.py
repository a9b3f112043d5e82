import numpy as np
import pytest
import torch

from allometry import InputError, report
from allometry.report.sections.nesting import nesting
from allometry.study import Study, jobs, local
from allometry.study.recipes.dyck_runs import GeneratorRun, _generator, _stream, score, twins
from allometry.targets import Brackets, Dyck

JOB = Brackets(k=3, depth=2, length=12)


def test_the_distribution_at_every_position_is_the_languages():
    tokens, law, heights, tops = JOB.exact(0, size=20, seed=1)
    language = Dyck(3, 2)
    for row in range(20):
        word = []
        for t in range(12):
            np.testing.assert_allclose(law[row, t], language.next_symbol(word))
            assert heights[row, t] == sum(1 - 2 * (s % 2) for s in word)
            if heights[row, t]:
                assert law[row, t, 2 * tops[row, t] + 1] >= 0.5
            symbol = int(tokens[row, t + 1])
            word = [] if symbol == 6 else [*word, symbol]


def test_entropy_rate_is_that_of_long_sequences():
    _, law, _, _ = JOB.exact(0, size=64, seed=2, length=2000)
    each = -(law * law.clamp(min=1e-300).log()).sum(-1)[:, 100:].mean(1)
    se = float(each.std() / 8)
    assert abs(float(each.mean()) - float(JOB.entropy_rate)) < 5 * se


def test_batches_depend_on_step_and_seed_alone():
    first = JOB.batch(4, size=8, seed=0)
    assert torch.equal(first, JOB.batch(4, size=8, seed=0))
    assert not torch.equal(first, JOB.batch(5, size=8, seed=0))
    assert not torch.equal(first, JOB.batch(4, size=8, seed=1))


def test_a_guess_scores_as_chance():
    found = score(lambda x: torch.zeros(*x.shape, 7), JOB, seed=0, length=400)
    assert found["loss"].value == pytest.approx(np.log(7))
    # Always the first type: right for a third of the brackets.
    assert abs(found["recalled"].value - 1 / 3) < 5 * found["recalled"].se


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    def few(target, ladder, *, tokens, seeds):
        specs = twins(target, ladder, tokens=tokens, seeds=seeds, nestings=(2, 3), width=8)
        shallow = ("1 layer, width 8", "2 layers")
        return [s for s in specs if s().columns["shape"] in shallow]

    study = Study(JOB, recipes=[few], ladder=[1], seeds=1, tokens=[4000.0])
    return study.run(tmp_path_factory.mktemp("twins"), local(workers=1, threads=1))


def test_twins_stand_beside_the_construction(runs):
    frame = runs.frame()
    assert (frame["status"] == "done").all(), frame["error"].tolist()
    built = frame[frame["kind"] == "construction"]
    # The construction knows the law: nothing is forgotten, at any length.
    assert (built["recalled"] == 1).all()
    assert (built["recalled_longer"] == 1).all()
    trained = frame[frame["kind"] != "construction"]
    assert set(trained["kind"]) == {"transformer", "lstm"}
    for depth in (2, 3):
        floor = built.loc[built["nesting"] == depth, "test_loss"].iloc[0]
        assert (trained.loc[trained["nesting"] == depth, "test_loss"] > floor).all()


def test_the_report_shows_depth_against_nesting(runs, tmp_path):
    table = nesting(runs)
    assert table is not None
    assert [h.text for h in table.heads] == ["Network", "nesting 2", "nesting 3"]
    assert table.rows[0][0].text == "construction, 2 layers"
    page = report.write(tmp_path / "report.html", runs).read_text()
    assert "Depth against nesting" in page


def test_the_construction_on_a_stream_has_the_entropy_for_loss():
    # Not sampled: cross entropy with the exact law is the entropy of the places visited.
    _, law, _, _ = JOB.exact(-3, size=128, seed=2)
    entropy = -(law * law.clamp(min=1e-300).log()).sum(-1).mean()

    assert GeneratorRun(JOB, 0).columns["layers"] == 2
    made, _ = _generator(JOB)
    found = score(lambda x: torch.stack([_stream(made, r) for r in x]), JOB, seed=2, length=12)
    assert found["loss"].value == pytest.approx(float(entropy), abs=1e-9)


def test_the_command_line_names_the_study():
    rows = jobs.study("dyck", seeds=1).rows()
    assert len(rows) == 3 * (1 + 8)
    assert {row["nesting"] for row in rows} == {2, 4, 8}


def test_bad_jobs_are_refused():
    with pytest.raises(InputError, match=r"Brackets\.depth must be at least 1; got 0"):
        Brackets(2, 0)
    with pytest.raises(InputError, match=r"twins\.nestings must name at least one depth"):
        twins(JOB, [], tokens=[10], seeds=1, nestings=())


@pytest.mark.slow
def test_depth_helps_and_nothing_trained_is_exact(tmp_path):
    # The study of the docs at two thirds of its length.
    runs = jobs.dyck_study(seeds=1, tokens=[6e5]).run(tmp_path / "dyck", local(1, 1))
    frame = runs.frame()
    assert (frame["status"] == "done").all(), frame["error"].tolist()
    known = frame.set_index(["kind", "layers", "nesting"])["recalled"]
    assert all(known["construction", 2, D] == 1 for D in (2, 4, 8))
    # At D = 2 one layer of attention is enough; where brackets nest deeper, depth helps.
    for D in (4, 8):
        assert known["transformer", 1, D] < known["transformer", 2, D] < known["transformer", 3, D]
        assert known["convolution", 2, D] < known["convolution", 4, D] < known["convolution", 6, D]
    assert known["transformer", 1, 2] > known["transformer", 1, 4] > known["transformer", 1, 8]
