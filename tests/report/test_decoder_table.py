"""Decoders side by side."""

import html
import re

import pytest

from allometry import decode, study
from allometry._core.errors import InputError
from allometry.models import Transformer
from allometry.report.decoder_table import STRATEGIES, compare, decoders
from allometry.targets import Text

TEXT = Text.from_string("to be or not to be <script>alert(1)</script> that is & was. " * 20)


@pytest.fixture(scope="module")
def saved():
    model = Transformer(vocabulary=TEXT.vocabulary.size, width=16, depth=1, heads=2, context=16)
    return study.SavedModel(model, TEXT.vocabulary, "transformer", "string", TEXT.unit)


def test_each_decoder_writes_and_is_judged_by_the_model(saved):
    found = {one.name: one for one in compare(saved, "to ", n=24)}
    assert set(found) == {*STRATEGIES, "beam of 4"}
    for one in found.values():
        assert len(one.along) == 24
        assert sum(s for _, s in one.pieces) == pytest.approx(sum(one.along), rel=1e-5)
        assert one.texture.surprise == pytest.approx(sum(one.along) / 24, rel=1e-5)
    best = study.likeliest(saved, "to ", n=24, width=4)[0]
    beam = found["beam of 4"]
    assert sum(beam.along) == pytest.approx(-best["log_prob"], rel=1e-6)
    assert "".join(t for t, _ in beam.pieces) == best["text"]


def test_the_page_shows_each_text_and_escapes_it(saved, tmp_path):
    path = tmp_path / "d" / "decoders.html"
    found = decoders(path, saved, "to <b>", n=24, strategies={"plain": decode.plain}, beam=None)
    page = path.read_text()
    (shown,) = re.findall(r'<pre class="shaded">(.*?)</pre>', page, re.S)
    assert html.unescape(re.sub("<[^>]+>", "", shown)) == "".join(t for t, _ in found[0].pieces)
    assert "to <b>" not in page
    assert "http://" not in re.sub(r"http://www.w3.org/\d+/\w+", "", page)
    assert "https://" not in page
    assert len(page) < 3_000_000


def test_a_page_needs_a_name_and_some_tokens(saved, tmp_path):
    with pytest.raises(InputError, match=r"decoders\.path must end in \.html"):
        decoders(tmp_path / "d.txt", saved)
    with pytest.raises(InputError, match=r"compare\.n must be at least 8"):
        compare(saved, "to ", n=2)
