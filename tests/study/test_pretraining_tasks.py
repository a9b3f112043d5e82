"""Studies of domains, upstream tasks and transductions, on one rung each."""

import math

import pytest
import torch

from allometry._core.errors import InputError
from allometry.study import jobs, recipes
from allometry.study.recipes.domain_runs import Domains
from allometry.study.recipes.pretraining_tasks import TASKS
from allometry.study.recipes.transduction_runs import answered, score, writer
from allometry.study.request import default_dtype
from allometry.targets import Sources, Symbols, Text, Transduction
from allometry.train import BatchedTrainer
from tests.study.fakes import carry_out


def small_domains():
    text = Text.from_string("the cat sat on the mat. " * 400, name="cats")
    return Domains([text, Symbols.tunes(200), Symbols.series(n=200)])


def test_domains_stand_on_one_scale(tmp_path):
    target = small_domains()
    specs = recipes.domains(target, [2e3], tokens=[25_000], seeds=1)
    assert [s().columns["family"] for s in specs] == ["text", "tunes", "series"]
    found = [carry_out(s, tmp_path) for s in specs]
    for out in found:
        c = out.columns
        assert c["loss"] == pytest.approx(c["nats"] / c["symbol_entropy"])
        assert c["loss"] < 0.95  # 1 is what counting symbols reaches
        assert out.sample
        assert out.curve["loss"][-1] == pytest.approx(c["loss"])
    tunes = found[1].columns
    assert tunes["nats"] > tunes["floor"] - 5 * tunes["nats_se"]


@pytest.mark.parametrize("task", TASKS)
def test_tasks_end_in_one_readout(task, tmp_path):
    texts = {"a": "the cat sat on the mat. " * 150, "b": "1 + 2 = 3, 3 + 4 = 7; " * 150}
    target = Sources.from_strings(texts, codes=False, splits=(0.6, 0.2, 0.2))
    (spec,) = recipes.upstream(target, [1e3], tokens=[6_000], seeds=1, task=task, context=16)
    out = carry_out(spec, tmp_path)
    assert out.columns["family"] == task
    assert out.columns["loss"] < math.log(2)  # letters and figures are easy to distinguish
    assert set(out.measures) == {"right", "untrained", "upstream_loss"}
    assert out.measures["right"].value > 0.9
    assert out.measures["upstream_loss"].value < 8


def test_codes_contain_the_answer():
    target = Sources.from_strings({"a": "abc" * 90, "b": "def" * 90})
    with pytest.raises(InputError, match=r"Sources\.codes"):
        recipes.upstream(target, [1e3], tokens=[1e3], seeds=1)
    with pytest.raises(InputError, match="next symbol, cloze"):
        recipes.upstream(target, [1e3], tokens=[1e3], seeds=1, task="rhyme")


@pytest.mark.parametrize("kind", ["encoder-decoder", "decoder"])
def test_exact_is_what_greedy_decoding_gets_right(kind):
    """A share computed from the true answers equals the one of answers decoded one by one."""
    job = Transduction("sorting", size=3, length=4)
    model = writer(kind, job.size, 16, 1, job.length)
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    for step in range(60):
        losses, counts, _ = answered(model, *job.batch(step, size=32, seed=0), job.end)
        optimiser.zero_grad()
        (losses.sum() / counts.sum()).backward()
        optimiser.step()
    _, exact = score(model, job, -1)
    source, answer = job.batch(-1, size=512, seed=0)
    written = answer[:, :1]
    with torch.no_grad():
        for _ in range(job.length + 1):
            if kind == "decoder":
                logits = model(torch.cat([source, written], 1))
            else:
                logits = model(written, source, source_padding=source == job.end)
            written = torch.cat([written, logits[:, -1:].argmax(-1)], 1)
    ended = (answer == job.end).long().cumsum(1) > 1
    right = ((written == answer) | ended).all(1).double().mean()
    assert exact.value == pytest.approx(float(right), abs=1e-12)
    assert 0.05 < exact.value < 1  # the training is short on purpose: both outcomes occur


def test_cross_attention_learns_to_reverse(tmp_path):
    job = Transduction("reversal", size=4, length=4)
    (spec,) = recipes.transduction(job, [1.5e4], tokens=[40_000], seeds=1)
    out = carry_out(spec, tmp_path)
    assert out.columns["loss"] < 0.5  # chance is log 5 = 1.6
    assert out.measures["exact"].value > 0.3


@pytest.mark.parametrize("kind", ["domain", "encoder-decoder", "decoder"])
def test_members_of_a_pack_end_where_they_end_alone(kind):
    if kind == "domain":
        specs = recipes.domains(Domains([Symbols.tunes(100)]), [2e3], tokens=[3_000], seeds=2)
    else:
        job = Transduction("sorting", size=5, length=5)
        specs = recipes.transduction(job, [2e3], tokens=[1_500], seeds=2, kind=kind)
    runs = [spec() for spec in specs]
    with default_dtype(torch.float32):
        trainer = BatchedTrainer({str(r.seed): r.training() for r in runs})
        ends = {end.name: end.trained for end in trainer()}
        single = [run.training().alone() for run in runs]
    for run, alone in zip(runs, single, strict=True):
        # Single precision: sums are taken in another order.
        assert ends[str(run.seed)].loss.value == pytest.approx(alone.loss.value, rel=1e-4)


def test_grown_sizes_are_near_what_was_asked():
    for kind in ("encoder-decoder", "decoder"):
        for spec in recipes.transduction(
            Transduction("reversal"), [1e3, 1e4, 1e5], tokens=[1e4], seeds=1, kind=kind
        ):
            N = spec().budget().N
            wanted = [1e3, 1e4, 1e5][spec().rung]
            assert 0.5 < N / wanted < 2


@pytest.mark.parametrize(
    ("job", "families"),
    [
        ("domains", {"text", "digits", "tunes", "series"}),
        ("tasks", set(TASKS)),
        ("sorting", {"encoder-decoder", "decoder"}),
    ],
)
def test_jobs_are_known_by_name(job, families):
    study = jobs.study(job, rungs=1, largest=2e3, seeds=1, tokens=[5e3])
    assert {row["family"] for row in study.rows()} == families


def test_a_folder_of_texts_is_a_text_of_several_sources(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text(f"{name} so it goes and goes.\n" * 200)
    study = jobs.study(str(tmp_path), rungs=1, largest=1e3, seeds=1, tokens=[2e3], context=16)
    assert isinstance(study.target, Sources)
    assert study.target.codes
    run = tmp_path / "run"
    run.mkdir()
    out = carry_out(study.specs()[0], run)
    assert math.isfinite(out.columns["loss"])
