"""The public names of `allometry.study`: lazy, listed, and old ones deprecated."""

import subprocess
import sys

import pytest

import allometry as al
from allometry.study import rank, tasks
from allometry.study.execute import torchrun_worker

BLOCKED = """
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, NoTorch())
"""


def test_every_public_name_exists_and_dir_lists_them_alone():
    assert dir(al.study) == sorted(al.study.__all__)
    for name in al.study.__all__:
        assert getattr(al.study, name) is not None
    assert not {"Bundle", "ExecutionOptions", "Task"} & set(al.study.__all__)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Board", al.study.TensorBoardLogger),
        ("Bundle", tasks.Bundle),
        ("How", tasks.ExecutionOptions),
        ("Needs", al.study.RayResources),
        ("Piece", al.study.GeneratedText),
        ("Place", al.study.RunContext),
        ("Saved", al.study.SavedModel),
        ("Task", tasks.Task),
    ],
)
def test_old_names_work_with_a_warning(old, new):
    with pytest.warns(DeprecationWarning, match=f"study.{old} is deprecated"):
        assert getattr(al.study, old) is new


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = al.study.nothing


def test_the_journal_and_the_names_of_jobs_need_no_torch():
    code = "from allometry.study import Journal, Runs\n"
    code += "from allometry.study.job_table import JOBS, theory_families\n"
    code += "assert theory_families()['degree'][0] == 'T_2' and 'moons' in JOBS\n"
    subprocess.run([sys.executable, "-c", BLOCKED + code], check=True)


def test_the_old_module_of_torchrun_workers_is_an_alias():
    assert rank.main is torchrun_worker.main
