"""The page that steps through the layers of a construction."""

import json
import re
import shutil

import pytest
import torch

from allometry import InputError
from allometry.construct import dyck, program, turing
from allometry.construct.programs import library
from allometry.report.layer_steps import follow, steps

MADE = dyck(2, 3, 16)


def test_what_is_shown_is_what_the_network_does():
    shown = follow(MADE, "([])")
    tokens, slots = MADE.slots("([])")
    assert shown.slots == slots == ["start", "(", "[", "]", ")", "end"]
    states = torch.tensor(shown.states)
    torch.testing.assert_close(states, MADE.model.states(tokens)[:, 0], atol=5e-5, rtol=0)
    assert len(shown.attention) == MADE.model.depth
    for heads in shown.attention:
        torch.testing.assert_close(
            torch.tensor(heads).sum(-1), torch.ones(2, 6), atol=1e-3, rtol=0
        )
    # In layer 1 the inner closing bracket looks at the inner opening one.
    assert shown.attention[0][0][3][2] == 1
    assert "opening" in shown.names
    assert shown.ends == "accepted"


@pytest.mark.parametrize(
    ("made", "word", "ends"),
    [
        (dyck(2, 3, 8), "([)]", "rejected"),
        (program(library.sort(), alphabet="abc", n=6), "cab", "output: a b c"),
        (turing("1RB1LB_1LA1RZ", steps=8), "", "halted after 6 steps: state Z"),
        (turing("1RB1LB_1LA1RZ", steps=8, mode="autoregressive"), "", "halted after 6 steps"),
        (dyck(1, 2, 4, mode="generate", p=0.25), "(", "next symbol: 0.25 0.75"),
    ],
)
def test_every_construction_can_be_followed(made, word, ends):
    shown = follow(made, word)
    assert shown.ends.startswith(ends)
    assert len(shown.states) == made.model.depth + 1
    assert len(shown.states[0]) == len(shown.slots)


def test_the_page_stands_alone(tmp_path):
    made = program(library.reverse(), alphabet=["</script>", "b"], n=4)
    page = steps(tmp_path / "steps.html", made, ["</script>", "b"]).read_text()
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
    # A token can't end the script that carries it.
    data = re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1]
    assert json.loads(data)["slots"] == ["start", "</script>", "b"]


def test_what_does_not_fit_a_page_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"steps\.path must end in \.html"):
        steps(tmp_path / "page.pdf", MADE, "()")
    with pytest.raises(InputError, match=r"steps\.word must take at most 64 slots; got 72"):
        follow(dyck(1, 3, 80), "()" * 35)


@pytest.mark.browser
def test_arrow_keys_go_from_layer_to_layer(tmp_path):
    from playwright import sync_api as playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("no chromium on this machine; on Debian: apt-get install chromium")
    url = steps(tmp_path / "steps.html", MADE, "([])").as_uri()
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        page, troubles = browser.new_page(), []
        page.on("console", lambda m: troubles.append(m.text))
        page.on("pageerror", lambda e: troubles.append(str(e)))
        page.goto(url)
        assert page.inner_text("#where") == "Layer 1, head 1"
        page.keyboard.press("ArrowRight")
        assert page.inner_text("#where") == "Layer 2, head 1"
        # All six slots look somewhere; one that is chosen looks alone.
        assert page.locator(".look").count() == 6
        page.locator(".slot[role=button]").nth(4).click()
        assert page.locator(".look:not(.faint)").count() == 1
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("ArrowLeft")
        assert page.inner_text("#where") == "Input tokens"
        assert page.locator(".look").count() == 0
        browser.close()
    assert not troubles
