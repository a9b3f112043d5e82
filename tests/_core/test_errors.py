import pytest

from allometry import AllometryError, InputError, UnidentifiedError
from allometry._core import errors


def test_require_names_the_thing_the_constraint_the_value_and_the_fix():
    with pytest.raises(InputError) as caught:
        errors.require(False, "ladder.rungs", "be at least 1", 0, "Ask for one.")
    assert str(caught.value) == "ladder.rungs must be at least 1; got 0. Ask for one."


def test_require_cuts_long_values():
    with pytest.raises(InputError) as caught:
        errors.require(False, "x", "be short", "y" * 1000)
    assert len(str(caught.value)) < 120


def test_require_passes_what_holds():
    errors.require(True, "x", "hold", None)


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (errors.InputError, ValueError),
        (errors.UnidentifiedError, ArithmeticError),
        (errors.DivergedError, ArithmeticError),
        (errors.StorageError, OSError),
        (errors.LockedError, RuntimeError),
        (errors.MissingExtraError, ImportError),
    ],
)
def test_each_error_is_ours_and_a_builtin(error, builtin):
    assert issubclass(error, AllometryError)
    assert issubclass(error, builtin)


def test_an_unidentified_error_carries_its_estimate():
    assert UnidentifiedError("no floor", 3.0).estimate == 3.0


def test_a_missing_extra_names_how_to_get_it():
    with pytest.raises(errors.MissingExtraError, match=r"pip install 'allometry\[ray\]'"):
        errors.require_extra("no_such_module_at_all", "ray")
