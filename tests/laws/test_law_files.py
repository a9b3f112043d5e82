"""Saved laws: the same digits after loading, earlier versions, and files that were changed.

`tests/fixtures/laws` holds one file of each kind of law for every version of the schema, with the
numbers that the law gave when it was saved. Add files for a new version; never change one.
"""

import inspect
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import allometry as al
from allometry import InputError, laws
from allometry._core.errors import StorageError
from allometry.laws import law_files, tagged_json
from allometry.laws.form_names import MAKERS
from allometry.laws.forms import Form

FIXTURES = Path(__file__).parents[1] / "fixtures" / "laws"
FAR = {"N": 1e10, "D": 1e12}


def sweep():
    rng = np.random.default_rng(0)
    N, D = np.repeat(np.logspace(6, 9, 6), 5), np.tile(np.logspace(8, 11, 5), 6)
    noise = np.exp(rng.normal(0, 0.004, len(N)))
    loss = (1.7 + 400 / N**0.34 + 410 / D**0.28) * noise
    return {"N": N, "D": D, "D_unique": D / 2, "loss": loss, "S": D / 1e5}


@pytest.fixture(scope="module")
def law():
    return laws.fit(sweep(), bootstrap=100)


@pytest.fixture
def saved(law, tmp_path):
    return law.save(tmp_path / "law.json")


def test_a_loaded_law_gives_the_same_digits(law, saved):
    again = laws.load(saved)
    points = {"N": np.logspace(6, 12, 50), "D": np.logspace(12, 8, 50)}
    assert np.array_equal(again.band(**points), law.band(**points))
    assert again.predict(C=1e24) == law.predict(C=1e24)
    assert again.plan(1e24) == law.plan(1e24)
    assert again.plan(1e24, unique=1e11, inference_tokens=1e12) == law.plan(
        1e24, unique=1e11, inference_tokens=1e12
    )
    assert again.solve(2.0) == law.solve(2.0)
    assert again.to_dict() == law.to_dict()
    assert str(again) == str(law)


@pytest.mark.parametrize("form", sorted(MAKERS))
def test_every_form_is_saved(form, tmp_path):
    one = laws.fit(sweep(), form, bootstrap=20, starts=2)
    again = laws.load(one.save(tmp_path / "law.json"))
    at = FAR | ({"S": 1e6} if form == "steps" else {})
    assert np.array_equal(again.band(**at), one.band(**at))


def test_every_form_has_a_label():
    mine = {cls for cls in Form.__subclasses__() if cls.__module__.startswith("allometry.")}
    unsaved = {cls.__name__ for cls in mine - {cls for cls, _ in tagged_json.FORMS.values()}}
    # Python functions, and the joint form of a search whose results are expressions.
    assert unsaved == {"Formula", "Levels"}


@pytest.mark.parametrize(
    "options",
    [
        {"variables": ["N", "D"], "cost": "6*N*D"},
        {"form": "E + A/N^alpha", "variables": ["N", "language"], "starts": 4},
        {"form": "E + A/N^alpha + 1.2345678901234567*B/D^beta"},
        {"form": "E - A/N^alpha", "variables": ["N"], "parameters": {"A": (-10.0, -0.1)}},
    ],
)
def test_laws_in_any_variables_are_saved(options, tmp_path):
    data = sweep() | {"language": np.tile(["en", "de"], 15)}
    one = laws.fit(data, **options)
    again = laws.load(one.save(tmp_path / "law.json"))
    points = {"N": np.logspace(6, 12, 30), "D": 1e12, "language": ["en", "de", "xx"] * 10}
    assert np.array_equal(again.band(**points), one.band(**points))
    fixed = {k: v for k, v in {"D": 1e11, "language": "en"}.items() if k in one.variables}
    assert again.optimum(["N"], **fixed) == one.optimum(["N"], **fixed)
    assert again.to_dict() == one.to_dict()


def test_numbers_that_are_not_finite_and_memory_order_are_kept():
    odd = np.asfortranarray([[np.inf, -0.0, 1 / 3], [np.nan, -np.inf, 5e-324]])
    back = tagged_json.decode(json.loads(json.dumps(tagged_json.encode(odd), allow_nan=False)))
    assert back.tobytes(order="A") == odd.tobytes(order="A")
    assert back.flags.f_contiguous
    assert tagged_json.decode(tagged_json.encode(-np.inf)) == -np.inf
    assert tagged_json.decode(tagged_json.encode({2: (1, frozenset("ab"))})) == {
        2: (1, frozenset("ab"))
    }


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.json")), ids=lambda path: path.stem)
def test_files_of_every_version_are_read(path):
    told = json.loads(path.with_suffix(".expected").read_text())
    one = laws.load(path)
    lower, value, upper = one.band(N=told["N"], D=told["D"])
    # Another linear algebra library may differ in the last digits; intervals may be improved.
    np.testing.assert_allclose(value, told["band"][1], rtol=1e-12)
    assert (lower < value).all()
    assert (value < upper).all()
    if isinstance(one, laws.Law):
        assert one.plan(told["compute"]).N is not None


def test_there_is_a_fixture_of_this_version():
    versions = {json.loads(path.read_text())["version"] for path in FIXTURES.glob("*.json")}
    assert versions == set(range(1, law_files.VERSION + 1))


def test_white_space_and_the_order_of_keys_do_not_matter(law, saved):
    data = json.loads(saved.read_text())
    saved.write_text(json.dumps(dict(sorted(data.items())), indent=2))
    assert laws.load(saved).predict(**FAR) == law.predict(**FAR)


@settings(max_examples=15, deadline=None)
@given(share=st.floats(0, 1, exclude_max=True))
def test_a_truncated_file_is_refused(tmp_path_factory, share):
    whole = (FIXTURES / "law_v1.json").read_bytes().rstrip()
    path = tmp_path_factory.mktemp("cut") / "law.json"
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(InputError, match="must be JSON"):
        laws.load(path)


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_a_changed_byte_is_refused_or_harmless(tmp_path_factory, data):
    whole = bytearray((FIXTURES / "law_v1.json").read_bytes())
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("flip") / "law.json"
    path.write_bytes(whole)
    try:
        one = laws.load(path)
    except InputError:
        return
    assert one.predict(**FAR) == laws.load(FIXTURES / "law_v1.json").predict(**FAR)


def rewritten(path, change):
    """The file after a change, with a checksum that fits it."""
    data = json.loads(path.read_text())
    change(data)
    data["sha256"] = law_files._digest(
        law_files.VERSION, {k: data.get(k) for k in ("about", "law")}
    )
    path.write_text(json.dumps(data))
    return path


def edit(*keys, to):
    def change(data):
        for key in keys[:-1]:
            data = data[key]
        data[keys[-1]] = to

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (edit("version", to=99), "upgrade allometry"),
        (edit("version", to="1"), "state the version"),
        (edit("law", "n", to="many"), r"Law\.n in a saved law must have its type"),
        (edit("law", "new_field", to=1), "upgrade allometry"),
        (edit("law", "$type", to="os.system"), "known parts"),
        (edit("law", "members", to=[]), "must have its type"),
        (edit("law", "members", "$tuple", 0, "form", "$form", to="eval"), "known form"),
        (edit("law", "members", "$tuple", 0, "theta", "shape", to=[7, 9]), "complete"),
        (edit("law", "members", "$tuple", 0, "theta", "data", to=[[1]]), "hold numbers"),
        (edit("law", "members", "$tuple", 0, "theta", to={"$call": "os"}), "known keys"),
        (edit("law", "members", "$tuple", 0, "solution", to={"$same": 10**6}), "complete"),
        (edit("law", to={"$tuple": []}), "a part of one"),
        (edit("law", to=None), "a part of one"),
        (edit("about", to={"rows": 3}), "text for each fact"),
    ],
)
def test_a_file_written_by_hand_is_checked(change, words, saved):
    with pytest.raises(InputError, match=words):
        laws.load(rewritten(saved, change))


def test_parts_must_fit_together(saved):
    def shorter(data):
        data["law"]["members"]["$tuple"][0]["theta"] = {
            "$array": "float64", "shape": [1], "data": [0.5],
        }  # fmt: skip

    with pytest.raises(InputError, match=r"fit together|complete"):
        laws.load(rewritten(saved, shorter))


def test_what_is_not_a_saved_law_is_refused_in_words(tmp_path, saved):
    other = tmp_path / "other.json"
    other.write_text('{"a": 1}')
    with pytest.raises(InputError, match=r"must be a law that law\.save wrote"):
        laws.load(other)
    text = saved.read_text()
    saved.write_text(text.replace('"n": 30', '"n": 31', 1))
    with pytest.raises(InputError, match=r"checksum does not match\. It was edited or damaged"):
        laws.load(saved)
    with pytest.raises(StorageError, match="no such file"):
        laws.load(tmp_path / "none.json")


def test_a_python_function_is_not_saved(tmp_path):
    def mine(N, E=1.0, k=0.1):
        return E + k * np.log(1e12 / N)

    one = laws.fit(sweep(), mine, bootstrap=0)
    with pytest.raises(InputError, match="Write the form as an expression"):
        one.save(tmp_path / "law.json")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file(law, saved, monkeypatch):
    before = saved.read_bytes()

    def full(*_):
        raise OSError(28, "no space")

    monkeypatch.setattr("allometry._core.files.os.fsync", full)
    with pytest.raises(StorageError, match="disk is full"):
        law.save(saved)
    assert saved.read_bytes() == before
    assert [p.name for p in saved.parent.iterdir()] == ["law.json"]


# Shortcuts


@pytest.fixture
def csv(tmp_path):
    rows = sweep()
    lines = ["N,D,loss"] + [
        f"{n},{d},{y}" for n, d, y in zip(rows["N"], rows["D"], rows["loss"], strict=True)
    ]
    path = tmp_path / "runs.csv"
    path.write_text("\n".join([*lines, "1e6,1e9,diverged"]))
    return path


def test_fit_and_plan_read_paths_columns_and_laws(csv, saved, law):
    one = al.fit(csv, bootstrap=100)
    assert one.predict(**FAR) == law.predict(**FAR)
    assert any("line 32" in sentence for sentence in one.warnings)
    assert al.fit(sweep(), bootstrap=100).predict(**FAR) == law.predict(**FAR)
    assert al.fit(str(saved)).predict(**FAR) == law.predict(**FAR)
    planned = law.plan(1e23)
    for runs in (law, saved):
        assert al.plan(runs, compute=1e23) == planned
    assert al.plan(csv, 1e23, bootstrap=100).N == planned.N
    fixed = al.plan(csv, 1e23, D=1e12, form="chinchilla", bootstrap=20).D
    assert float(fixed or 0) == pytest.approx(1e12)
    assert al.fit(csv, "power", N="N", bootstrap=20).form == "power"


def test_fit_reads_further_columns_of_a_file(tmp_path):
    lines = [
        f"{n},{2e9},{rate},{2 + 300 / n**0.3 + np.log(rate / 1e-3) ** 2 / 50}"
        for n in np.geomspace(1e6, 1e9, 5)
        for rate in (3e-4, 1e-3, 3e-3)
    ]
    path = tmp_path / "rates.csv"
    path.write_text("\n".join(["N,D,lr,loss", *lines]))
    form = "E + A/N^a + k*log(lr/r)^2"
    one = al.fit(path, form, variables=["N", "lr"], starts=8)
    assert one.variables == ("N", "lr")
    assert one.params["r"].value == pytest.approx(1e-3, rel=0.05)


def test_the_options_of_reading_are_those_of_load():
    options = inspect.signature(al.runs.load).parameters
    assert {"path", *al._READING} == set(options)


def test_shortcuts_refuse_in_words(csv, saved, tmp_path):
    with pytest.raises(InputError, match="saved law alone"):
        al.fit(saved, "power")
    with pytest.raises(InputError, match="be given a path"):
        al.fit(sweep(), N="params")
    with pytest.raises(InputError, match="no such path"):
        al.fit("missing.csv")
    log = tmp_path / "log.csv"
    log.write_text("step,loss\n" + "\n".join(f"{s},{2 + 10 / s}" for s in range(10, 400, 10)))
    with pytest.raises(InputError, match="several runs of different size"):
        al.plan(log, 1e20)
