"""Old public names still resolve, with a warning."""

import importlib
import subprocess
import sys

import pytest

RENAMED = [
    ("allometry.construct", "Cost", "UniversalCost"),
    ("allometry.decode", "Memory", "DecodingCache"),
    ("allometry.decode", "Texture", "TextStatistics"),
    ("allometry.laws", "Curve", "LossCurve"),
    ("allometry.targets", "Table", "NumericTable"),
    ("allometry.models", "quantise", "quantisation"),
    ("allometry.train", "Crowd", "BatchedTrainer"),
    ("allometry.train", "Ended", "TrainingResult"),
    ("allometry.train", "Judge", "EarlyStopping"),
    ("allometry.train", "On", "DeviceSettings"),
    ("allometry.train", "Packed", "StackedModels"),
    ("allometry.train", "Stepper", "StackedStep"),
    ("allometry.train", "Traced", "TracedStep"),
    ("allometry.train.game", "Contest", "GANTraining"),
    ("allometry.train.game", "Rules", "GANSettings"),
    ("allometry.train.pretraining", "next_passage", "next_sentence"),
    ("allometry.train.objectives", "next_passage", "next_sentence"),
]


@pytest.mark.parametrize(("module", "old", "new"), RENAMED)
def test_an_old_name_is_the_new_one_with_a_warning(module, old, new):
    found = importlib.import_module(module)
    with pytest.warns(DeprecationWarning, match=f"{module}.{old} is deprecated since 0.2.*{new}"):
        assert getattr(found, old) is getattr(found, new)


def test_python_shows_the_warning_to_who_runs_a_script_with_the_old_name():
    # Python shows deprecation warnings of the main script only: they must point at its lines.
    code = "import allometry as al\nal.laws.Curve\nal.decode.Memory\n"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr
    assert "<string>:2: DeprecationWarning: allometry.laws.Curve" in shown
    assert "<string>:3: DeprecationWarning: allometry.decode.Memory" in shown


def test_other_names_are_unknown():
    with pytest.raises(AttributeError, match="has no attribute 'Crowds'"):
        importlib.import_module("allometry.train").Crowds  # noqa: B018
