import inspect
import pkgutil
import re

import pytest

import allometry as al
from allometry._core.cite import bibliography


def test_the_package_cites_itself():
    assert al.cite().startswith("@software{allometry,")


def test_every_entry_has_title_author_and_year():
    for key, entry in bibliography().items():
        for field in ("title", "author", "year"):
            assert re.search(rf"\b{field}\s*=", entry), (key, field)


def test_what_has_no_references_is_refused():
    with pytest.raises(al.InputError, match="something with references"):
        al.cite(print)


def test_every_key_named_in_a_docstring_is_in_the_bibliography():
    import allometry

    missing = []
    for module in pkgutil.walk_packages(allometry.__path__, "allometry."):
        if module.name.endswith("__main__"):
            continue
        source = inspect.getsource(__import__(module.name, fromlist=["x"]))
        for key in re.findall(r"`([a-z]+(?:19|20)[0-9]{2}[a-z]?)`", source):
            if key not in bibliography():
                missing.append((module.name, key))
    assert not missing


def test_a_class_gives_its_papers():
    assert "@inproceedings{yun2020," in al.cite(al.models.Transformer)
