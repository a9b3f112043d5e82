"""The protocol of the sections, old public names, and imports without torch."""

import subprocess
import sys

import pytest

from allometry import report
from allometry.report import content
from allometry.report.page import render
from allometry.report.sections import SECTIONS
from tests.report.kinds import KINDS
from tests.report.synthetic import analysis, synthetic_runs

BLOCKED = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "sklearn", "tokenizers", "safetensors"):
            raise ImportError(name)

sys.meta_path.insert(0, Blocked())
import allometry.report.{module}
"""


@pytest.mark.parametrize("module", ["analysis", "figures", "law_charts", "page", "terminal"])
def test_tables_of_runs_are_reported_without_torch(module):
    subprocess.run([sys.executable, "-c", BLOCKED.format(module=module)], check=True)


@pytest.mark.parametrize("kind", ["rank", "text"])
def test_every_section_follows_the_protocol(kind):
    runs = KINDS[kind]
    result = report.analyse(runs, bootstrap=20)
    names = []
    for section in SECTIONS:
        applies = section.applies(runs, result)
        assert isinstance(applies, bool)
        for part in section.parts(runs, result) if applies else ():
            assert isinstance(part, content.Part)
            assert part.title
            assert all(isinstance(block, content.Block) for block in part.blocks)
            names.append(part.name)
    assert len(names) == len(set(names))
    assert names[-4:] == ["failed", "parameters", "made", "cite"]


def test_the_page_shows_any_section(monkeypatch):
    blocks = (content.Prose("A paragraph."), content.Chart("none", lambda width: None, "Nothing."))
    parts = [content.Part("mine", "My section", blocks), content.Part("empty", "Empty", ())]
    mine = content.Section(lambda runs, result: True, lambda runs, result: parts)
    off = content.Section(lambda runs, result: False, lambda runs, result: 1 / 0)
    monkeypatch.setattr("allometry.report.page.SECTIONS", (mine, off))
    page, charts = render(synthetic_runs(), analysis())
    assert '<section id="mine">' in page
    assert "A paragraph." in page
    assert "Empty" not in page
    assert charts == {}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Story", "Analysis"),
        ("tell", "analyse"),
        ("codes", "code_figures"),
        ("spectra", "process_spectra"),
        ("units", "likelihood_units"),
    ],
)
def test_old_names_warn(old, new):
    with pytest.warns(DeprecationWarning, match=rf"report\.{old} is deprecated .* Use .*{new}"):
        assert getattr(report, old) is getattr(report, new)


def test_the_old_argument_of_write_warns(tmp_path):
    with pytest.warns(DeprecationWarning, match="Use analysis="):
        path = report.write(tmp_path / "report.html", synthetic_runs(), story=analysis())
    assert analysis().target in path.read_text()


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = report.nothing
