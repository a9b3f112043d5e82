"""One model in two processes over gloo, started by torchrun."""

import os
import signal
from pathlib import Path

import pytest
import torch

import allometry as al
from allometry import InputError
from allometry.study import Study, local, recipes, torchrun
from allometry.study.execute.executor_names import executor_by_name
from tests.study.processes import LOOPBACK, descendants, listening

TEXT = al.targets.Text.from_string("she sells sea shells by the sea shore. " * 120)


def study():
    """A transformer, and an n-gram that can't be split."""

    def one_ngram(target, ladder, *, tokens, seeds):
        return recipes.ngram(target, ladder, tokens=tokens, seeds=seeds)[:1]

    return Study(TEXT, [recipes.transformer, one_ngram], [2000], seeds=1, tokens=[3e4])


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return study().run(tmp_path_factory.mktemp("one"), local(workers=1, threads=1))


def ranks():
    """Processes of a group, by rank."""
    found = {}
    for pid, line in descendants().items():
        if (
            "allometry.study.execute.torchrun_worker" in line
            and "allometry.study.execute.torchrun_launcher" not in line
        ):
            settings = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            (rank,) = [word[5:] for word in settings if word.startswith(b"RANK=")]
            found[int(rank)] = pid
    return found


def same(a, b):
    """Equal keys and equal losses, to what float32 sums taken in another order may differ by.

    A hundred steps carry a rounding of 1e-7 on; the bound is far below what a wrong share of a
    batch or a gradient that is not averaged would make (1e-1 and more here).
    """
    frames = [r.frame().sort_values("key").reset_index(drop=True) for r in (a, b)]
    exact = ["key", "family", "shape", "seed", "N", "D", "C", "status"]
    assert frames[0][exact].equals(frames[1][exact])
    assert set(frames[0].columns) == set(frames[1].columns)
    for name in ("loss", "test_loss"):
        pair = [torch.tensor(frame[name].to_numpy()) for frame in frames]
        torch.testing.assert_close(*pair, rtol=2e-3, atol=1e-4)
    curves = [r.curves().sort_values(["key", "step"])["loss"].to_numpy() for r in (a, b)]
    torch.testing.assert_close(*map(torch.tensor, curves), rtol=2e-3, atol=1e-4)


def disturbed(sent, rank, events):
    """Send a signal to one process of the group in the middle of its first training.

    Addresses that the group listens at are kept among the events.
    """

    def watch(event):
        events.append(event.kind)
        if event.kind == "progress" and "sent" not in events and event.data["step"] > 8:
            events.extend(f"at {address}" for address in listening())
            os.kill(ranks()[rank], sent)
            events.append("sent")

    return watch


def test_two_replicas_reach_the_loss_of_one_process_though_one_is_killed(undisturbed, tmp_path):
    events = []
    runs = study().run(
        tmp_path, torchrun(2, threads=1), watch=disturbed(signal.SIGKILL, 1, events)
    )
    assert "sent" in events
    assert events.count("started") == len(runs.frame()) + 1
    heard = {event[3:] for event in events if event.startswith("at ")}
    assert heard
    assert heard <= LOOPBACK
    same(undisturbed, runs)
    assert list((tmp_path / "checkpoints").iterdir()) == []


@pytest.mark.slow
def test_two_shards_reach_the_same_loss_despite_sigterm(undisturbed, tmp_path):
    """After SIGTERM the group writes one checkpoint of whole tensors, and the next continues."""
    events = []
    runs = study().run(
        tmp_path, torchrun(2, shard=True, threads=1), watch=disturbed(signal.SIGTERM, 1, events)
    )
    assert "sent" in events
    assert "stopped" in events
    same(undisturbed, runs)
    for key in runs.frame().query("family == 'transformer'")["key"]:
        files = [r.folder / "weights" / f"{key}.safetensors" for r in (undisturbed, runs)]
        a, b = (al.train.checkpoint.read(file)[0] for file in files)
        assert {k: v.shape for k, v in a.items()} == {k: v.shape for k, v in b.items()}


def test_bad_numbers_are_refused():
    with pytest.raises(InputError, match="be at least 1"):
        torchrun(0)
    with pytest.raises(InputError, match="executor must be one of"):
        executor_by_name("torchrun:twice")
    assert executor_by_name("torchrun:shard", workers=3).processes == 3
    assert executor_by_name("torchrun").shard is False
    with pytest.raises(InputError, match="processes must be at least 1; got 0"):
        executor_by_name("torchrun", workers=0)
