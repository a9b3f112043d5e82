"""A ladder of transformers beside the loop a person would write, on two cores.

Run: python bench/ladder.py [overhead] [tokens] [schedule] [law]

`overhead`: our loop beside a bare one, same model, one thread. `tokens`: tokens a second of a
nanoGPT-style loop at torch's defaults beside our processes of one thread, and the share of the
measured matmul peak. `schedule`: losses of runs with shared trunks beside cosine runs of the same
lengths. `law`: wall time from nothing to all final losses, three sizes and numbers of tokens: the
loop tries three rates at each size, ours carries one rate and shares trunks.
"""

import json
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import allometry as al
from allometry.study.executors import available_cores
from allometry.study.recipes.transformer import decoder, grow
from allometry.study.within import flops

CONTEXT = 64
TEXT = al.targets.Text.embedded()
V = TEXT.vocabulary.size


class Block(nn.Module):
    """Attention and a feed-forward layer."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.one, self.two = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        """(b, n, w) to (b, n, w)."""
        b, n, w = x.shape
        q, k, v = (
            t.view(b, n, self.heads, w // self.heads).transpose(1, 2)
            for t in self.qkv(self.one(x)).split(w, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, n, w))
        return x + self.down(F.gelu(self.up(self.two(x))))


class GPT(nn.Module):
    """In the manner of nanoGPT: learned positions, pre-norm, tied table."""

    def __init__(self, width, depth, heads):
        super().__init__()
        self.table, self.place = nn.Embedding(V, width), nn.Embedding(CONTEXT, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, V, bias=False)
        for p in self.parameters():
            if p.ndim == 2:
                nn.init.normal_(p, std=0.02)
        self.head.weight = self.table.weight

    def forward(self, tokens):
        """Logits (b, n, V)."""
        x = self.table(tokens) + self.place(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def loop(model, steps, batch, lr, seed=0):
    """What a person writes: random windows, cosine rate, clipping, AdamW as torch gives it."""
    data, rng = TEXT.train.numpy(), np.random.default_rng(seed)
    decayed = [p for p in model.parameters() if p.ndim >= 2]
    rest = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95))
    warmup = max(1, steps // 20)
    for step in range(steps):
        share = (step - warmup) / max(1, steps - warmup)
        rate = (step + 1) / warmup if step < warmup else 0.5 * (1 + math.cos(math.pi * share))
        for group in optimiser.param_groups:
            group["lr"] = lr * rate
        at = rng.integers(0, len(data) - CONTEXT - 1, batch)
        windows = np.stack([data[i : i + CONTEXT + 1] for i in at]).astype(np.int64)
        x = torch.from_numpy(windows)
        logits = model(x[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), x[:, 1:].flatten())
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()


def timed(run):
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def ours(shape, seed=0):
    return decoder(V, *shape, CONTEXT, torch.Generator().manual_seed(seed))


def overhead(rounds=7, steps=60):
    torch.set_num_threads(1)
    shape = grow(3.1e4)

    def bare():
        model = ours(shape)
        optimiser = al.train.adamw(model, lr=0.004, width=shape[0], base_width=64)
        for step in range(steps):
            for group in optimiser.param_groups:
                group["lr"] = group["peak_lr"] * 0.5
            loss = al.train.next_token(model, TEXT.batch(step, size=8, context=CONTEXT, seed=0))
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            loss.item()
            optimiser.step()

    def engine():
        model = ours(shape)
        optimiser = al.train.adamw(model, lr=0.004, width=shape[0], base_width=64)
        with tempfile.TemporaryDirectory() as folder:
            al.train.descend(
                model,
                optimiser,
                lambda step: al.train.next_token(
                    model, TEXT.batch(step, size=8, context=CONTEXT, seed=0)
                ),
                lambda: al.Estimate(0.0),  # measuring is a study's wish, not the loop's price
                steps=steps,
                seen=8 * CONTEXT,
                save_to=Path(folder) / "c.safetensors",
                watch=lambda progress: None,
                stop=lambda: False,
            )

    bare(), engine()
    pairs = [(timed(bare), timed(engine)) for _ in range(rounds)]
    ratios = sorted(b / a for a, b in pairs)
    print(
        f"our loop / bare loop: median {median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})"
    )


def worker(kind, size, steps, batch):
    """One process of `tokens`: prints tokens a second after a warm-up."""
    width, depth, heads = grow(size)
    if kind == "loop":
        model = GPT(width, depth, heads)
        loop(model, 3, batch, 1e-3)
        seconds = timed(lambda: loop(model, steps, batch, 1e-3))
    else:
        torch.set_num_threads(1)
        model = ours((width, depth, heads))
        optimiser = al.train.adamw(model, lr=0.004, width=width, base_width=64)

        def run(steps):
            al.train.descend(
                model,
                optimiser,
                lambda step: al.train.next_token(
                    model, TEXT.batch(step, size=batch, context=CONTEXT, seed=0)
                ),
                lambda: al.Estimate(0.0),
                steps=steps,
                seen=batch * CONTEXT,
            )

        run(3)
        seconds = timed(lambda: run(steps))
    print(json.dumps(steps * batch * CONTEXT / seconds))


def at_once(kind, number, *arguments):
    command = [sys.executable, __file__, "worker", kind, *map(str, arguments)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(number)]
    return sum(json.loads(p.communicate()[0]) for p in processes)


def peak():
    a = torch.randn(1024, 1024)
    a @ a
    seconds = min(timed(lambda: a @ a) for _ in range(20))
    return 2 * 1024**3 / seconds


def tokens(rounds=3):
    cores = available_cores()
    torch.set_num_threads(cores)
    top = peak()
    print(f"matmul peak {top / 1e9:.0f} GFLOP/s on {torch.get_num_threads()} threads")
    for size, steps in ((1e3, 60), (3.1e4, 40), (1e5, 20), (8.1e5, 6)):
        found = [
            (at_once("loop", 1, size, steps, 32), at_once("ours", cores, size, steps, 32))
            for _ in range(rounds)
        ]
        theirs, mine = (median(x) for x in zip(*found, strict=True))
        model = ours(grow(size))
        N, _ = al.train.count_parameters(model)
        each = al.train.count_training_flops(model, vocabulary=V, context=CONTEXT, tokens=1)
        print(
            f"N = {N:,}: loop {theirs / 1e3:.1f}k tokens/s, ours {mine / 1e3:.1f}k: "
            f"{mine / theirs:.2f}x; {mine * each / top:.1%} of the peak",
            flush=True,
        )


def schedule(seeds=3):
    """Shared trunks against cosine runs of the same lengths: the difference with its error."""
    sizes, D = [3e3, 3e4], [4e4, 8e4, 1.6e5]
    frames = {}
    for name, recipe in (
        ("cosine", al.study.recipes.transformer),
        ("wsd", al.study.recipes.cooled(al.study.recipes.transformer)),
    ):
        study = al.study.Study(TEXT, [recipe], sizes, seeds=seeds, tokens=D)
        with tempfile.TemporaryDirectory() as folder:
            started = time.perf_counter()
            runs = study.run(folder, schedule=study.schedule(folder))
            frames[name] = runs.frame()
            spent = flops(study)
        took = time.perf_counter() - started
        print(f"{name}: {spent:.3g} FLOPs, {took:.0f} s", flush=True)
    place = ["N", "D", "seed"]
    both = frames["cosine"].merge(frames["wsd"], on=place, suffixes=("_cosine", "_wsd"))
    for (N, tokens), rows in both.groupby(["N", "D"]):
        gap = rows["loss_wsd"] - rows["loss_cosine"]
        se = gap.std() / math.sqrt(len(gap))
        print(
            f"N = {N:,}, D = {tokens:,}: cosine {rows['loss_cosine'].mean():.4f}, "
            f"wsd {rows['loss_wsd'].mean():.4f}, difference {gap.mean():+.4f} (se {se:.4f})"
        )


def law():
    sizes, D, rates, batch = [1e4, 3.1e4, 1e5], [1e5, 2e5, 4e5], (1e-3, 3e-3, 1e-2), 8
    started = time.perf_counter()
    theirs = {}
    for size in sizes:
        width, depth, heads = grow(size)
        for tokens in D:
            losses = []
            for lr in rates:
                torch.manual_seed(0)
                model = GPT(width, depth, heads)
                loop(model, round(tokens / (batch * CONTEXT)), batch, lr)
                losses.append(al.train.evaluate(model, TEXT, "validation", context=CONTEXT).value)
            theirs[size, tokens] = min(losses)
    slow = time.perf_counter() - started
    started = time.perf_counter()
    recipe = al.study.recipes.cooled(al.study.recipes.transformer)
    study = al.study.Study(TEXT, [recipe], sizes, seeds=1, tokens=D)
    with tempfile.TemporaryDirectory() as folder:
        frame = study.run(folder, schedule=study.schedule(folder)).frame()
    quick = time.perf_counter() - started
    for (size, tokens), loss in theirs.items():
        near = frame.iloc[(frame["D"] - tokens).abs().argsort()]
        rung = sizes.index(size)
        mine = near[near["rung"] == rung].iloc[0]["loss"]
        print(f"N about {size:,.0f}, D {tokens:,.0f}: loop {loss:.3f}, ours {mine:.3f}")
    print(f"wall time: loop {slow:.1f} s, ours {quick:.1f} s: {slow / quick:.2f}x")


def main():
    if sys.argv[1:2] == ["worker"]:
        kind, size, steps, batch = sys.argv[2:]
        worker(kind, float(size), int(steps), int(batch))
        return
    parts = {"overhead": overhead, "tokens": tokens, "schedule": schedule, "law": law}
    for name in sys.argv[1:] or parts:
        print(f"## {name}", flush=True)
        parts[name]()


if __name__ == "__main__":
    main()
