"""Registered names: every class that a study uses has one, and files can name nothing else."""

import importlib
import pkgutil

import pytest

import allometry
from allometry import Estimate, InputError, Spec
from allometry._core import registry
from allometry._core.registry import KINDS, lookup, name_of, resolve

ALL = [(kind, name) for kind, names in KINDS.items() for name in names]


@pytest.mark.parametrize(("kind", "name"), ALL)
def test_every_registered_name_leads_to_what_carries_it(kind, name):
    assert callable(lookup(name, kind))
    assert name_of(lookup(name, kind)) == name


def test_a_name_is_registered_once():
    assert len({name for _, name in ALL}) == len(ALL)


def test_every_request_of_the_package_is_registered():
    import allometry.study.recipes as recipes
    from allometry.study.request import Request

    for info in pkgutil.iter_modules(recipes.__path__):
        importlib.import_module(f"{recipes.__name__}.{info.name}")

    def below(cls):
        return {cls}.union(*(below(each) for each in cls.__subclasses__()))

    final = {c for c in below(Request) if getattr(c, "__final__", False)}
    own = {c for c in final if c.__module__.startswith("allometry.")}
    # A user's own command or function is code, so no file may name it.
    code = {c for c in own if c.__module__.startswith("allometry.study.own_training.")}
    assert {name_of(c) for c in own - code} == set(KINDS["run"])


@pytest.mark.parametrize(
    "name",
    [
        "allometry.study.execute.processes:os.system",
        "allometry.study.execute.processes:subprocess.run",
        "allometry._core.files:Path.unlink",
        "allometry.study.saved_models:load",
        "allometry.targets.text:Text.from_paths",
        "os:system",
        "builtins:eval",
        "",
        None,
        3,
        ["allometry.models.recurrent:Recurrent"],
    ],
)
def test_a_file_can_name_nothing_but_a_registered_model(name):
    with pytest.raises(InputError, match="registered model"):
        Spec.from_dict({"spec": name, "arguments": {}})


def test_what_a_module_merely_imports_is_out_of_reach_even_in_orders():
    with pytest.raises(InputError, match="comes from elsewhere"):
        resolve("allometry.study.execute.processes:os.getcwd")
    with pytest.raises(InputError, match="importable"):
        resolve("allometry.nowhere:Something")


def test_a_density_is_no_model_and_a_run_is_neither():
    moons = {"spec": "allometry.targets.points.shapes:TwoMoons", "arguments": {}}
    assert Spec.from_dict(moons, "density")().dim == 2
    with pytest.raises(InputError, match="registered model"):
        Spec.from_dict(moons)
    inner = {"spec": "allometry.models.recurrent:Recurrent", "arguments": {"vocabulary": moons}}
    with pytest.raises(InputError, match="registered model"):
        Spec.from_dict(inner)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"vocabulary": "many", "width": 8, "depth": 1}, "vocabulary must be of type int"),
        ({"vocabulary": 5, "width": 8, "depth": True}, "depth must be of type int"),
        ({"vocabulary": 5, "width": [8], "depth": 1}, "width must be of type int"),
        ({"vocabulary": 5, "width": 8, "wide": 1}, "unexpected keyword argument 'wide'"),
        ({"vocabulary": 5, "width": 8, "rng": "cpu"}, "rng must be of type"),
        ({"vocabulary": 10**30, "width": 8}, "at most"),
        ({"vocabulary": {"a": {"b": {"c": 1}}}}, "vocabulary must be of type int"),
        (["vocabulary"], "arguments must be a mapping"),
    ],
)
def test_arguments_from_a_file_are_checked_against_the_signature(arguments, words):
    with pytest.raises(InputError, match=words):
        Spec.from_dict({"spec": "allometry.models.recurrent:Recurrent", "arguments": arguments})


def test_nesting_in_a_file_is_bounded():
    deep: object = 1
    for _ in range(200):
        deep = [deep]
    said = {"spec": "allometry.models.recurrent:Recurrent", "arguments": {"vocabulary": deep}}
    with pytest.raises(InputError, match="levels deep"):
        Spec.from_dict(said)


def test_a_class_of_ones_own_can_be_registered_once():
    name = allometry.register(Estimate, name="tests/Estimate")
    try:
        assert name_of(Estimate) == name == allometry.register(Estimate, name="tests/Estimate")
        said = {"spec": name, "arguments": {"value": 2.0}}
        assert Spec.from_dict(said)() == Estimate(2.0)
        with pytest.raises(InputError, match="names something else already"):
            allometry.register(InputError, name=name)
        with pytest.raises(InputError, match="names something else already"):
            allometry.register(InputError, name="allometry.models.recurrent:Recurrent")
    finally:
        del registry._own[name], registry._names["allometry._core.estimate:Estimate"]


def test_a_moved_class_keeps_its_name_and_key(monkeypatch):
    """What a later release does when code moves: the label stays, `MOVED` gives the new place."""
    before = Spec(Estimate, value=2.0)
    old = "allometry.elsewhere:Estimate"
    monkeypatch.setitem(registry.MOVED, old, "allometry._core.estimate:Estimate")
    monkeypatch.setitem(registry._kinds, old, "model")
    monkeypatch.setitem(registry._names, "allometry._core.estimate:Estimate", old)
    after = Spec(Estimate, value=2.0)
    assert after.name == old
    assert after.key != before.key  # the label is part of the key: it must never change
    assert Spec.from_dict(after.to_dict())() == Estimate(2.0)
