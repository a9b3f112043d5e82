"""Anyone's runs: columns by name and unit, bad rows by line, every kind of log."""

import json
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import allometry as al
from allometry.runs.importers import load, number
from allometry.runs.importers.columns import recognise


def test_columns_are_recognised_by_name_and_unit(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text(
        "Model Size (M),Training tokens (B),Eval loss,note\n"
        "10,0.2,3.5,a\n20,0.4,3.2,b\n40,0.8,3.0,c\n"
    )
    made = load(path)
    assert made.columns["N"].tolist() == [1e7, 2e7, 4e7]
    assert made.columns["D"].tolist() == [2e8, 4e8, 8e8]
    assert made.columns["loss"].tolist() == [3.5, 3.2, 3.0]
    assert made.recognised["N"] == "Model Size (M) x 1e+06"
    assert "C follows from C = 6 N D." in made.notes


def test_suffixes_and_separators(tmp_path):
    path = tmp_path / "runs.tsv"
    path.write_text('params\ttokens\tloss\n1.3B\t26B\t2.5\n125M\t"2,500,000,000"\t3.1\n')
    made = load(path)
    assert made.columns["N"].tolist() == [1.3e9, 1.25e8]
    assert made.columns["D"].tolist() == [2.6e10, 2.5e9]


@given(st.floats(1e-3, 999), st.sampled_from(["", "K", "M", "B", "T"]))
def test_numbers_with_suffixes(x, suffix):
    scale = {"": 1, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}[suffix]
    assert number(f"{x!r}{suffix}") == pytest.approx(x * scale)


def test_bad_rows_are_listed_by_line(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("N,loss\n1e3,2\nx,3\n1e4,\n1e5,-1\n\n1e6,1.5\n1e3,2\n1e7,nan\n")
    made = load(path)
    assert made.columns["N"].tolist() == [1e3, 1e6]
    why = {bad.line: bad.why for bad in made.bad}
    assert sorted(why) == [3, 4, 5, 8, 9]
    assert "not a number: 'x'" in why[3]
    assert "missing" in why[4]
    assert "not positive" in why[5]
    assert "same run as line 2" in why[8]


def test_a_file_of_which_a_third_is_junk_still_fits(tmp_path):
    rng = np.random.default_rng(0)
    rows = []
    for i, n in enumerate(np.geomspace(1e3, 1e8, 60)):
        loss = 1.5 + 40 / n**0.4
        junk = ["oops,", f"{n},NaN", f"-{n},{loss}", "#REF!,#REF!"][i % 4]
        rows.append(junk if i % 3 == 0 else f"{n},{loss * np.exp(0.003 * rng.normal())}")
    path = tmp_path / "runs.csv"
    path.write_text("N,loss\n" + "\n".join(rows) + "\n")
    made = load(path)
    assert len(made.bad) == 20
    law = al.laws.fit(made.columns, "floor", bootstrap=0)
    assert law.params["E"].value == pytest.approx(1.5, rel=0.02)


def test_named_columns_win(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("N,other,loss,ppl\n1,10,2,7\n2,20,1.5,5\n")
    made = load(path, N="other", loss="ppl")
    assert made.columns["N"].tolist() == [10, 20]
    assert made.columns["loss"].tolist() == pytest.approx(np.log([7, 5]))
    assert load(path, loss="ppl", unit="nats").columns["loss"].tolist() == [7, 5]
    with pytest.raises(al.InputError, match="--n must name a column; got 'nope'"):
        load(path, N="nope")


def test_mixed_units_are_noticed(tmp_path):
    path = tmp_path / "runs.csv"
    values = [1.3, 2.7, 6.9, 13, 1.25e8, 3.5e8, 7.6e8]  # billions and units in one column
    path.write_text("params,loss\n" + "\n".join(f"{v},{3 - i / 9}" for i, v in enumerate(values)))
    assert any("one unit was used" in note for note in load(path).notes)


def test_json_lines(tmp_path):
    path = tmp_path / "runs.jsonl"
    rows = [{"config": {"params": 10**k}, "summary": {"val_loss": 3 - 0.1 * k}} for k in (3, 4, 5)]
    path.write_text("\n".join(map(json.dumps, rows)) + "\nnot json\n")
    made = load(path, N="config/params")
    assert made.columns["loss"].tolist() == pytest.approx([2.7, 2.6, 2.5])
    assert [bad.line for bad in made.bad] == [4]


def test_parquet(tmp_path):
    import pandas as pd

    frame = pd.DataFrame({"N": [1e3, 1e4, 1e5], "loss": [3.0, 2.0, 1.5]})
    frame.to_parquet(tmp_path / "runs.parquet")
    assert load(tmp_path / "runs.parquet").columns["N"].tolist() == [1e3, 1e4, 1e5]


def test_trainer_state(tmp_path):
    log = [{"step": s, "loss": 9.0} for s in (5, 15)]
    log += [
        {"step": s, "eval_loss": 4 / s**0.1, "num_input_tokens_seen": 512 * s} for s in (10, 20)
    ]
    state = {"log_history": log, "global_step": 20, "total_flos": 2e15}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    made = load(tmp_path)
    assert made.columns["D"].tolist() == [5120, 10240]
    assert made.columns["C"].tolist() == [1e15, 2e15]
    assert made.columns["loss"].tolist() == pytest.approx([4 / 10**0.1, 4 / 20**0.1])


def test_history_folder(tmp_path):
    for size in ("190M", "1.3B"):
        (tmp_path / f"{size}-1xC.csv").write_text(
            "_step,throughput/total_tokens,eval/loss\n1,100,5\n2,200,4\n3,300,\n"
        )
    made = load(tmp_path, N="params (from name)")
    assert sorted(made.columns["N"]) == [1.9e8, 1.3e9]
    assert made.columns["D"].tolist() == [200, 200]  # where the last loss was measured
    assert made.columns["loss"].tolist() == [4, 4]


def test_one_history_is_a_learning_curve(tmp_path):
    path = tmp_path / "run.csv"
    path.write_text("_step,val/loss\n10,3\n20,2.5\n30,2.3\n")
    made = load(path)
    assert made.source == "W&B history"
    assert made.columns["D"].tolist() == [10, 20, 30]
    assert any("counted in steps" in note for note in made.notes)


def test_the_ladder_from_raw_exports(shared_data):
    made = load(
        shared_data / "olmo_ladder" / "ladder-runs",
        N="params (from name)",
        loss="eval/c4_en-validation/CrossEntropyLoss",
    )
    assert len(made.columns["N"]) >= 30
    assert made.recognised["D"] == "throughput/total_tokens"


def test_tensorboard(tmp_path):
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    for run in ("a", "b"):
        writer = EventFileWriter(str(tmp_path / run))
        for step in (1, 2, 3):
            for tag, value in (
                ("val/loss", 3.0 / step),
                ("params", 100.0 if run == "a" else 200.0),
            ):
                summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
                writer.add_event(Event(step=step, summary=summary, wall_time=0.0))
        writer.close()
    made = load(tmp_path)
    assert sorted(made.columns["N"]) == [100, 200]
    assert made.columns["loss"].tolist() == [1, 1]
    curve = load(next((tmp_path / "a").iterdir()))
    assert curve.columns["loss"].tolist() == pytest.approx([3, 1.5, 1])


def test_mlflow(tmp_path):
    for i, size in enumerate(("1e3", "1e4")):
        run = tmp_path / "mlruns" / "0" / f"run{i}"
        (run / "metrics").mkdir(parents=True)
        (run / "params").mkdir()
        (run / "params" / "n_params").write_text(size)
        (run / "metrics" / "val_loss").write_text("1 3.0 0\n2 2.0 1\n")
    made = load(tmp_path / "mlruns")
    assert made.columns["N"].tolist() == [1e3, 1e4]
    assert made.columns["loss"].tolist() == [2, 2]


WRONG = {
    "nothing": (None, "no such path"),
    "empty": ("", "header line"),
    "no rows": ("N,loss\n", "no rows"),
    "no loss": ("N,height\n1,2\n", "column of losses"),
    "no size": ("name,loss\na,2\n", "parameters, tokens or FLOPs"),
    "no header": ("1e6,2e7,3.1\n2e6,4e7,2.9\n", "header line that names its columns"),
    "words": ("params,loss\nlarge,2\nhuge,1.9\n", "numbers in its column 'params'; got 'large'"),
    "all bad": ("N,loss\n1e6,-2\n2e6,-3\n", "all 2 rows are bad, the first on line 2: loss"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_files_are_reported(tmp_path, case):
    text, words = WRONG[case]
    path = tmp_path / "runs.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(al.InputError, match=words):
        load(path)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("runs.jsonl", "text in UTF-8; got the byte 0x80"),
        ("runs.parquet", "must be a Parquet file"),
        ("runs.json", "one object per line and name it .jsonl"),
    ],
)
def test_bytes_of_another_kind_are_reported(tmp_path, name, words):
    path = tmp_path / name
    path.write_bytes(bytes(range(256))[::-1][127:] * 20)
    with pytest.raises(al.InputError, match=words):
        load(path)


def test_a_folder_of_nothing_known(tmp_path):
    with pytest.raises(al.InputError, match="none of these"):
        load(tmp_path)


def test_names_of_sizes_are_not_kinds_of_runs(shared_data):
    made = load(shared_data / "gadre_overtraining/runs_104.csv")
    (note,) = [note for note in made.notes if "several kinds" in note]
    assert "dataset_name (3 values)" in note  # rpj, c4_original, rw_original
    assert "model_name" not in note  # d=96_l=8_h=4 and five others: one N each


def test_kinds_of_runs_are_reported_and_separated(tmp_path):
    path = tmp_path / "runs.csv"
    rows = [
        f"{task},{n},{20 * n},{loss}"
        for task, level in (("code", 1.0), ("text", 2.0))
        for n, loss in zip((1e6, 2e6, 4e6, 8e6, 1.6e7), level + np.arange(5, 0, -1.0), strict=True)
    ]
    path.write_text("task,params,tokens,loss\n" + "\n".join(rows))
    made = load(path)
    assert any(
        "column task (2 values) divides the runs into several kinds" in note for note in made.notes
    )
    only = load(path, where=["task=text"])
    assert len(only.columns["loss"]) == 5
    assert only.columns["loss"][0] == 7.0
    with pytest.raises(al.InputError, match="--where task must be one of code, text"):
        load(path, where=["task=images"])
    with pytest.raises(al.InputError, match="column=value"):
        load(path, where=["language"])


def test_bytes_are_reported_and_separators_are_a_bad_row(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_bytes(bytes(range(256)))
    with pytest.raises(al.InputError, match="text in UTF-8"):
        load(path)
    path.write_text("params,tokens,loss\n1e6,2e7,3\n,,\n\n2e6,4e7,2.8\n")
    assert [bad.line for bad in load(path).bad] == [3]


def test_a_measure_named_as_the_loss_brings_its_own_error():
    names = ["N", "loss", "loss_se", "gap", "gap_se"]
    found = recognise(names, {"loss": "gap"})
    assert found["loss"][0] == "gap"
    assert found["loss_se"][0] == "gap_se"
    assert recognise(names, {"loss": None})["loss_se"][0] == "loss_se"


EUROPEAN = (
    "params;tokens;loss\n1000000;20000000;3,142\n2000000;40000000;2,98\n4000000;80000000;2,8\n"
)


def test_decimal_commas_are_read_right_and_said(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text(EUROPEAN)
    made = load(path)
    assert made.columns["loss"].tolist() == [3.142, 2.98, 2.8]
    assert any("decimal points: 'loss' has '2,98'" in word for word in made.words())


def test_points_between_thousands_are_read_with_decimal_commas(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("params;loss\n125.000;3,142\n1.300.000;2,98\n")
    assert load(path).columns["N"].tolist() == [125_000, 1_300_000]


def test_thousands_separators_are_read_and_said(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text('params,loss\n"125,000",3.142\n"1,300,000",2.98\n')
    made = load(path)
    assert made.columns["N"].tolist() == [125_000, 1_300_000]
    assert any("thousands separators: 'params'" in word for word in made.words())


AMBIGUOUS = {
    "commas alone": ("params;loss\n1000000;3,142\n2000000;2,987\n", "'3,142', which may be 3142"),
    "quoted": ('params,loss\n1e6,"3,142"\n2e6,"2,987"\n', "'loss' must say what its commas mean"),
    "both in one column": ("params;loss\n1000000;3,142\n2000000;2.987\n", "'3,142'"),
    "beside points": ("params;loss\n1.5M;3,142\n2.5M;2,987\n", "'loss' must say"),
    "beside thousands": ("params;loss\n1,500,000;3,142\n2,500,000;2,987\n", "'loss' must say"),
    "contradiction": ("params;loss\n1,500,000;3,14\n", "either decimal commas or decimal points"),
    "points of thousands": ("params;loss\n125.000;3,14\n350.000;2,9\n", "'params' must say what"),
}


@pytest.mark.parametrize("case", AMBIGUOUS)
def test_ambiguous_commas_are_refused(tmp_path, case):
    text, words = AMBIGUOUS[case]
    path = tmp_path / "runs.csv"
    path.write_text(text)
    with pytest.raises(al.InputError, match=words):
        load(path)


@given(st.lists(st.floats(1.0, 9.0), min_size=2, max_size=9), st.integers(2, 6))
def test_a_table_of_decimal_commas_is_that_of_points(tmp_path_factory, losses, digits):
    folder = tmp_path_factory.mktemp("t")
    rows = [f"{1000 * i};{x:.{digits}f}" for i, x in enumerate(losses, 1)]
    (folder / "p.csv").write_text("N;loss\n" + "\n".join(rows))
    (folder / "c.csv").write_text(("N;loss\n" + "\n".join(rows)).replace(".", ","))
    told = load(folder / "p.csv").columns["loss"].tolist()
    try:
        assert load(folder / "c.csv").columns["loss"].tolist() == told
    except al.InputError:
        assert digits == 3  # a comma before three digits may part thousands


def test_rows_longer_than_the_header_are_bad_rows(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("params,tokens,loss\n1e6,2e7,3,142\n2e6,4e7,2.9\n4e6,8e7,2.8,,\n")
    made = load(path)
    assert made.columns["loss"].tolist() == [2.9, 2.8]
    assert [(bad.line, bad.why) for bad in made.bad] == [(2, "it has 4 cells, the header 3 names")]
    path.write_text("params,tokens,loss\n1e6,2e7,3,142\n2e6,4e7,2,987\n")
    with pytest.raises(al.InputError, match="all 2 rows are bad, the first on line 2: it has 4"):
        load(path)


def test_a_column_that_is_there_twice_is_refused_unless_it_does_not_matter(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("N,loss,loss\n1e6,3,9\n2e6,2.5,9\n")
    with pytest.raises(al.InputError, match="'loss', read as loss, must be unique"):
        load(path)
    path.write_text("N,loss,loss,x,x\n1e6,3,3,1,2\n2e6,2.5,2.5,1,2\n")
    assert load(path).columns["loss"].tolist() == [3, 2.5]
    with pytest.raises(al.InputError, match="--where must name one column"):
        load(path, where=["x=1"])


def test_a_key_that_is_there_twice_makes_a_bad_row(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text('{"N": 1e6, "loss": 3, "loss": 9}\n{"N": 2e6, "loss": 2.5}\n[1]\n{"N":\n')
    made = load(path)
    assert made.columns["loss"].tolist() == [2.5]
    assert "twice" in made.bad[0].why
    assert "not a JSON object" in made.bad[1].why
    assert "must be JSON" in made.bad[2].why


@pytest.mark.parametrize("status", [" failed", "FAILED", "Failed ", "\tcrashed", "cancelled"])
def test_a_status_is_read_whatever_its_case_and_blanks(tmp_path, status):
    path = tmp_path / "runs.csv"
    rows = [f"{n:g},{1.5 + 40 / n**0.4},done" for n in np.geomspace(1e3, 1e7, 8)]
    path.write_text("N,loss,status\n" + "\n".join([*rows, f"1e8,99,{status}"]))
    law = al.laws.fit(load(path).columns, "floor", bootstrap=0)
    assert law.n == 8
    assert any("did not finish" in warning for warning in law.warnings)


def test_an_unknown_status_is_reported(tmp_path):
    path = tmp_path / "runs.csv"
    rows = [f"{n:g},{1.5 + 40 / n**0.4},blue" for n in np.geomspace(1e3, 1e7, 8)]
    path.write_text("N,loss,status\n" + "\n".join(rows))
    law = al.laws.fit(load(path).columns, "floor", bootstrap=0)
    assert any("'blue' is not a known one" in warning for warning in law.warnings)


def test_excels_word_on_its_separator(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("sep=;\nN;loss\n1e6;x\n2e6;2,5\n")
    made = load(path)
    assert made.columns["loss"].tolist() == [2.5]
    assert made.bad[0].line == 3


@pytest.mark.parametrize(
    "row",
    [
        '{"N": 1e6, "loss": [3]}',
        '{"N": 1e6, "loss": ' + "1" * 400 + "}",
        '{"N": 1e6, "loss": ' + "1" * 5000 + "}",
        '{"N": 1e6, "loss": ' + "[" * 100_000 + "}",
        '{"N": 1e6, "loss": ' + '{"a":' * 300 + "1" + "}" * 300 + "}",
        '{"N": 1e6, "loss": true}',
    ],
)
def test_what_is_no_number_in_json_lines_is_a_bad_row(tmp_path, row):
    path = tmp_path / "runs.jsonl"
    path.write_text(row + '\n{"N": 2e6, "loss": 2.5}\n')
    made = load(path)
    assert made.columns["loss"].tolist() == [2.5]
    assert [bad.line for bad in made.bad] == [1]


def test_a_disk_is_not_walked(tmp_path, monkeypatch):
    from allometry._core import user_files

    deep = tmp_path / "/".join("abcdefghijklmnop")
    deep.mkdir(parents=True)
    with pytest.raises(al.InputError, match="fewer than 12 levels"):
        load(tmp_path)
    monkeypatch.setattr(user_files, "DEEPEST", 99)
    (tmp_path / "loop").symlink_to(tmp_path)
    with pytest.raises(al.InputError, match="none of these"):
        load(tmp_path)


def test_pipes_are_refused_in_folders_and_by_name(tmp_path):
    os.mkfifo(tmp_path / "runs.csv")
    os.mkfifo(tmp_path / "trainer_state.json")
    with pytest.raises(al.InputError, match="regular file; got a named pipe"):
        load(tmp_path / "runs.csv")
    with pytest.raises(al.InputError, match="regular file; got a named pipe"):
        load(tmp_path)
    with pytest.raises(al.InputError, match="regular file; got a device"):
        load("/dev/zero")


def test_an_event_file_that_claims_too_much_is_refused(tmp_path):
    path = tmp_path / "events.out.tfevents.1.here"
    path.write_bytes((1 << 60).to_bytes(8, "little") + bytes(40))
    with pytest.raises(al.InputError, match="TensorBoard event file; got a record"):
        load(path)


def test_headers_of_brackets_take_no_longer_than_their_length():
    assert recognise(["(" * 200_000, "loss", "N (M)"], {})["N"] == ("N (M)", 1e6)


def test_seeds_in_words_are_read_by_their_number(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("N,loss,seed\n1e6,3.0,seed_0\n1e7,2.5,seed_12\n1e8,2.2,7\n1e9,2.1,main\n")
    assert load(path).columns["seed"][:3].tolist() == [0, 12, 7]
    assert np.isnan(load(path).columns["seed"][3])
