"""A ladder of transformers compared with a plain training loop, on two cores.

Run: python bench/ladder.py [overhead] [compile] [tokens] [points] [cores] [schedule] [rates]
                            [same] [law]

`overhead`: our loop and a bare one, same model, one thread, CPU seconds (`overhead=60`: number of
rounds). `compile`: fills torch's disk cache for `tokens`, as a schedule does before it starts.
`tokens`: tokens per second of a nanoGPT-style loop at torch's defaults and of our processes of one
thread, eager, compiled and compiled with `precision="auto"`, with the share of the float32 matmul
peak; `compile=1e5,8.1e5` and `tokens=1e5,8.1e5` run these sizes only. `points`: eight vectorised
seeds of 2-D models and a loop over the seeds, one thread (`points=compiled`: also compiled, which
takes minutes). `cores`: the same in wall time, two processes with their own vectorised seeds.
`schedule`: losses of runs with a shared stable phase and of cosine runs of the same lengths.
`rates`: the same, each schedule at its own best rate of four (`rates=FOLDER` stores the runs
there). `same`: our shared stable phase and the bare loop at one rate, with the same schedule.
`law`: wall time from start to all final losses, three sizes and numbers of tokens (`law=4e5`: that
many at most). The loop tries three rates at each; ours tries them at the smallest size, stops poor
ones early, transfers the best to the other sizes and shares stable phases (`law=4e5,wsd`: the loop
uses our schedule too, with a run for each number of tokens).
"""

import contextlib
import dataclasses
import json
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import gan
import needs
import numpy as np
import torch
from scipy.stats import t as student
from torch import nn
from torch.nn import functional as F

import allometry as al
from allometry._core.process import available_cores
from allometry.models import autoencoders
from allometry.study.recipes.transformer_runs import decoder, grow
from allometry.study.schedule.study_budget import flops

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
    """Like nanoGPT: learned positions, pre-norm, tied embedding."""

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
    """The usual loop: random windows, cosine rate, clipping, torch's AdamW."""
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


def overhead(rounds=20, steps=50):
    """Overhead of the loop on a text, and on a model of two numbers, where little else remains."""
    rounds = int(rounds)
    torch.set_num_threads(1)
    shape = grow(3.1e4)
    model = ours(shape)
    optimiser = al.train.adamw(model, lr=0.004, width=shape[0], base_width=64)

    def loss(step):
        return al.train.next_token(model, TEXT.batch(step, size=8, context=CONTEXT, seed=0))

    whole = beside(model, optimiser, loss, rounds, steps)
    tiny = nn.Linear(1, 1)
    optimiser = al.train.adamw(tiny, lr=0.004)
    x = torch.ones(1, 1)
    small = beside(tiny, optimiser, lambda _: tiny(x).sum(), rounds, 40 * steps)
    ratios = small[:, 1] / small[:, 0], whole[:, 1] / whole[:, 0]
    for name, ratio in zip(("2 parameters", "31k parameters"), ratios, strict=True):
        rng = np.random.default_rng(0)
        medians = np.median(rng.choice(ratio, (2000, rounds)), axis=1)
        low, high = np.quantile(medians, [0.025, 0.975])
        print(
            f"{name}: our loop / bare loop, CPU seconds: median {np.median(ratio):.3f} of "
            f"{rounds} rounds (95 % interval {low:.3f} to {high:.3f})"
        )
    extra = np.median(small[:, 1] - small[:, 0]) / (40 * steps)
    step = np.median(whole[:, 0]) / steps
    print(
        f"our loop adds {extra * 1e6:.1f} us to a step of {step * 1e3:.2f} ms: {extra / step:.2%}"
    )


def beside(model, optimiser, loss, rounds, steps):
    """CPU seconds of a bare loop and of ours per round; the order alternates."""

    def bare():
        for step in range(steps):
            factor = al.train.warmup_decay(step, steps=steps, warmup=max(1, steps // 20))
            for group in optimiser.param_groups:
                group["lr"] = group["peak_lr"] * factor
            value = loss(step)
            optimiser.zero_grad(set_to_none=True)
            value.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            value.item()
            optimiser.step()

    folder = tempfile.mkdtemp()

    def engine():
        al.train.descend(
            *(model, optimiser, loss),
            lambda: al.Estimate(0.0),  # evaluation is part of a study, not of the loop
            steps=steps,
            seen=8 * CONTEXT,
            save_to=Path(folder) / "c.safetensors",
            watch=lambda progress: None,
            stop=lambda: False,
        )

    bare(), engine()
    pairs = []
    for i in range(rounds):
        both = {run: cpu(run) for run in ((bare, engine) if i % 2 else (engine, bare))}
        pairs.append((both[bare], both[engine]))
    return np.array(pairs)


def cpu(run):
    started = time.process_time()
    run()
    return time.process_time() - started


def text_training(shape, batch, seed=0):
    """Our training as in a study, without an end."""
    model = ours(shape, seed)
    return al.train.Training(
        model=model,
        optimiser=al.train.adamw(model, lr=0.004, width=shape[0], base_width=64, weight_decay=0.1),
        objective=al.train.next_token,
        batch=lambda step: (TEXT.batch(step, size=batch, context=CONTEXT, seed=seed),),
        measure=lambda model: al.Estimate(0.0),
        steps=10**6,
        seen=batch * CONTEXT,
    )


def stepping(trainings, mode):
    """A function that runs a number of steps of all `trainings`, vectorised in one mode.

    `auto` is compiled, in the faster precision, like `--precision auto`.
    """
    named = {str(i): training for i, training in enumerate(trainings)}
    trainer = al.train.BatchedTrainer(
        named,
        size=len(named),
        compiled=mode in ("compiled", "auto"),
        traced=mode == "traced",
        precision="auto" if mode == "auto" else "float32",
    )

    def run(steps):
        for step in range(steps):
            trainer.stacks[0].step(step)

    return run


def worker(kind, size, steps, batch):
    """One process of `tokens`: prints tokens per second after a warm-up."""
    shape = grow(size)
    if kind == "loop":
        model = GPT(*shape)
        run = lambda steps: loop(model, steps, batch, 1e-3)  # noqa: E731
    else:
        torch.set_num_threads(1)
        run = stepping([text_training(shape, batch)], kind)
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


SIZES = ((1e3, 60), (3.1e4, 40), (1e5, 20), (8.1e5, 6))


def sizes_of(words):
    """The named ones of `SIZES`; all if none is named."""
    wanted = [float(word) for word in words.split(",") if word]
    return [pair for pair in SIZES if not wanted or pair[0] in wanted]


def compile_all(words=""):
    for size, _ in sizes_of(words):
        for kind in ("compiled", "auto"):
            seconds = timed(lambda s=size, k=kind: at_once(k, 1, s, 1, 32))
            print(f"size about {size:,.0f}, {kind}: ready after {seconds:.0f} s", flush=True)


def tokens(words="", rounds=3):
    cores = available_cores()
    torch.set_num_threads(cores)
    top = peak()
    print(f"matmul peak {top / 1e9:.0f} GFLOP/s on {torch.get_num_threads()} threads")
    kinds = {"loop": 1, "eager": cores, "compiled": cores, "auto": cores}
    for size, steps in sizes_of(words):
        found = [
            [at_once(kind, number, size, steps, 32) for kind, number in kinds.items()]
            for _ in range(rounds)
        ]
        theirs, *others = (median(x) for x in zip(*found, strict=True))
        model = ours(grow(size))
        N, _ = al.train.count_parameters(model)
        each = al.train.count_training_flops(model, vocabulary=V, context=CONTEXT, tokens=1)
        speeds = "; ".join(
            f"{kind} {rate / 1e3:.1f}k: {rate / theirs:.2f}x ({rate * each / top:.1%})"
            for kind, rate in zip(list(kinds)[1:], others, strict=True)
        )
        print(
            f"N = {N:,}: loop {theirs / 1e3:.1f}k tokens/s ({theirs * each / top:.1%} of peak); "
            f"ours {speeds}",
            flush=True,
        )


def points_training(family, seed):
    """A model of points as in a study."""
    moons = al.targets.points.Points(al.targets.points.TwoMoons(), held_out=10)
    if family == "flow":
        (spec,) = al.study.recipes.affine_coupling(moons, [5e3], tokens=[1e9], seeds=1)
        return dataclasses.replace(spec(), seed=seed).training()
    rng = torch.Generator().manual_seed(seed)
    model = autoencoders.dense_vae((2,), 2, autoencoders.Gaussian(), (64, 64), rng).float()

    def batch(step):
        noise = torch.Generator().manual_seed(seed + 7919 * step)
        x = moons.batch(step, size=256, seed=seed).float()
        return x, torch.randn(256, 2, generator=noise)

    return al.train.Training(
        model=model,
        optimiser=al.train.adamw(model, lr=1e-3),
        objective=al.train.negative_log_likelihood,
        batch=batch,
        measure=lambda model: al.Estimate(0.0),
        steps=10**6,
        seen=256,
    )


def points_run(family, mode, seeds):
    """A function that runs a number of steps of all seeds of a 2-D model."""
    if family == "gan":
        kinds = {"mapped": False, "traced": True, "compiled": "fused"}
        step = gan.loop(seeds) if mode == "loop" else gan.packed(seeds, kinds[mode])
        return lambda steps: [step() for _ in range(steps)]
    trainings = [points_training(family, seed) for seed in range(seeds)]
    if mode != "loop":
        return stepping(trainings, mode)

    def bare(steps):
        for training in trainings:
            for step in range(steps):
                loss = training.objective(training.model, *training.batch(step))
                training.optimiser.zero_grad(set_to_none=True)
                loss.backward()
                nn.utils.clip_grad_norm_(training.model.parameters(), training.clip)
                loss.item()
                training.optimiser.step()

    return bare


FAMILIES = ("flow", "vae", "gan")


def points(more="", rounds=5, steps=20, seeds=8):
    """CPU seconds of a step of eight seeds: in a loop, and vectorised in each mode."""
    torch.set_num_threads(1)
    for family in FAMILIES:
        modes, ready = {"loop": points_run(family, "loop", seeds)}, {}
        modes["loop"](2)
        for mode in ("mapped", "traced", *filter(None, [more])):
            started = time.process_time()
            modes[mode] = points_run(family, mode, seeds)
            modes[mode](2)
            ready[mode] = time.process_time() - started
        spent = {mode: [] for mode in modes}
        for _ in range(rounds):
            for mode, run in modes.items():
                spent[mode].append(cpu(lambda run=run: run(steps)) / steps)
        base = median(spent["loop"])
        speeds = ", ".join(
            f"{mode} {base / median(spent[mode]):.2f}x (ready after {ready[mode]:.1f} s)"
            for mode in ready
        )
        print(
            f"{family}, {seeds} seeds: loop {base * 1e3:.1f} ms per step of all seeds; {speeds}",
            flush=True,
        )


def points_worker(family, mode, seeds):
    """A process of `cores`: runs the number of steps on each input line, then prints `done`."""
    torch.set_num_threads(1)
    run = points_run(family, mode, int(seeds))
    run(3)
    print("ready", flush=True)
    for line in sys.stdin:
        run(int(line))
        print("done", flush=True)


def cores(mode="traced", rounds=7, steps=40):
    """Wall seconds: a loop over eight seeds, and vectorised seeds in each of two processes.

    The loop has one thread, which is faster than two for models this small.
    """
    for family in FAMILIES:
        teams = {
            "loop": (1, "loop", 8),
            "4 seeds each": (2, mode, 4),
            "8 seeds each": (2, mode, 8),
        }
        with contextlib.ExitStack() as stack:
            started = {
                name: [stack.enter_context(points_process(family, *what)) for _ in range(number)]
                for name, (number, *what) in teams.items()
            }
            each = {name: [] for name in teams}
            for _ in range(rounds):
                for name, (number, _, seeds) in teams.items():
                    team = started[name]
                    spent = timed(lambda team=team: run_all(team, steps))
                    each[name].append(spent / (steps * number * seeds))
        base = median(each["loop"])
        ours = {name: base / median(found) for name, found in each.items() if name != "loop"}
        ratios = ", ".join(f"{name} {ratio:.2f}x" for name, ratio in ours.items())
        print(
            f"{family}: loop {base * 1e3:.2f} ms per step of a seed; two processes, {mode}: "
            f"{ratios}"
        )


@contextlib.contextmanager
def points_process(*what):
    """A process of `cores` that is ready to run."""
    command = [sys.executable, __file__, "points-worker", *map(str, what)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        process.stdout.readline()
        yield process
        process.stdin.close()


def run_all(processes, steps):
    for process in processes:
        process.stdin.write(f"{steps}\n")
        process.stdin.flush()
    for process in processes:
        process.stdout.readline()


def schedule(seeds=3):
    """Shared stable phases against cosine runs of the same lengths: difference and error."""
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


def rates(folder="", sizes=(3e3, 1e4), D=(1e5, 2e5, 4e5), seeds=4):
    """Both schedules, each at its own best rate for every size and number of tokens.

    The rate of a seed is the best mean rate of the other seeds, so no loss selects its own rate.
    With a `folder`, its finished runs are not trained again.
    """
    tried = [0.004, 0.008, 0.016, 0.032]
    frames, spent = {}, {}
    with tempfile.TemporaryDirectory() as other:
        for name, recipe in (
            ("cosine", al.study.recipes.transformer),
            ("wsd", al.study.recipes.cooled(al.study.recipes.transformer)),
        ):
            recipes = [al.study.recipes.at_rate(recipe, {"transformer": lr}) for lr in tried]
            study = al.study.Study(TEXT, recipes, sizes, seeds=seeds, tokens=list(D))
            place = Path(folder or other) / name
            plan = study.schedule(place, workers=1, threads=1)
            frame = study.run(place, al.study.local(1, 1), schedule=plan).frame()
            inner = {s.key: s.arguments.get("run", s).arguments["lr"] for s in study.specs()}
            frames[name] = frame.assign(rate=frame["key"].map(inner))
            spent[name] = flops(study)
    share = spent["wsd"] / spent["cosine"]
    print(
        f"FLOPs: one run for each D {spent['cosine']:.3g}, shared {spent['wsd']:.3g}: {share:.3f}"
    )
    gaps = {}
    for N, tokens in frames["cosine"].groupby(["N", "D"]).groups:
        found = {}
        for name, frame in frames.items():
            here = frame[(frame["N"] == N) & (frame["D"] == tokens)]
            table = here.pivot_table(index="seed", columns="rate", values="loss")
            found[name] = _at_best(table)
            means = ", ".join(f"{lr:g}: {loss:.4f}" for lr, loss in table.mean().items())
            print(f"N = {N:,}, D = {tokens:,}, {name}: {means}")
        gaps[N, tokens] = found["wsd"] - found["cosine"]
        means = ", ".join(f"{name} {losses.mean():.4f}" for name, losses in found.items())
        print(
            f"  at their best rates: {means}, difference {_interval(gaps[N, tokens])}", flush=True
        )
    # A seed's cells share weights and batches, so seeds are the independent units.
    whole = np.mean(list(gaps.values()), axis=0)
    print(f"all sizes and numbers of tokens: difference {_interval(whole)}")


def _at_best(table):
    """The loss of each seed (row) at the rate (column) that is best for the other seeds."""
    # A rate at which any seed diverged is excluded.
    others = ((table.sum(skipna=False) - row).idxmin() for _, row in table.iterrows())
    return np.array([table.loc[seed, lr] for seed, lr in zip(table.index, others, strict=True)])


def _interval(values):
    """The mean of independent values and its 95 % interval (Student's t)."""
    mean, se = np.mean(values), np.std(values, ddof=1) / math.sqrt(len(values))
    half = student.ppf(0.975, len(values) - 1) * se
    return f"{mean:+.4f} ({mean - half:+.4f} to {mean + half:+.4f})"


def bare_training(size, D, lr, shape="cosine", warmup=None, batch=8):
    """Our model in the usual loop: torch's AdamW, one process."""
    width, depth, _ = grown = grow(size)
    model = ours(grown)
    scaled = lr / math.sqrt(depth)
    groups = al.train.parameter_groups(
        model, lr=scaled, width=width, base_width=64, weight_decay=0.1
    )
    peaks = [group["lr"] for group in groups]
    optimiser = torch.optim.AdamW(groups, betas=(0.9, 0.95))
    steps = max(1, round(D / (batch * CONTEXT)))
    warmup = warmup or max(1, steps // 20)
    for step in range(steps):
        factor = al.train.warmup_decay(step, steps=steps, warmup=warmup, shape=shape)
        for group, peak in zip(optimiser.param_groups, peaks, strict=True):
            group["lr"] = peak * factor
        x = TEXT.batch(step, size=batch, context=CONTEXT, seed=0)
        loss = F.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
    return al.train.evaluate(model, TEXT, "validation", context=CONTEXT).value


def same(sizes=(3e3, 1e4), D=(1e5, 2e5, 4e5), lr=0.008):
    """One seed and rate: our shared stable phase, the bare loop with its schedule and a cosine."""
    warmup = round(min(D) / (8 * CONTEXT)) // 10
    recipe = al.study.recipes.cooled(al.study.recipes.transformer, warmup=warmup)
    recipe = al.study.recipes.at_rate(recipe, {"transformer": lr})
    study = al.study.Study(TEXT, [recipe], sizes, seeds=1, tokens=list(D))
    with tempfile.TemporaryDirectory() as folder:
        plan = study.schedule(folder, workers=1, threads=1)
        frame = study.run(folder, al.study.local(1, 1), schedule=plan).frame()
    frame = frame.sort_values(["N", "D"])
    cells = [(size, tokens) for size in sizes for tokens in D]
    for (size, tokens), ours in zip(cells, frame["loss"], strict=True):
        wsd, cosine = (bare_training(size, tokens, lr, *w) for w in (("wsd", warmup), ()))
        print(
            f"N about {size:,.0f}, D {tokens:,.0f}: ours {ours:.4f}, loop with our schedule "
            f"{wsd:.4f}, with a cosine {cosine:.4f}",
            flush=True,
        )


def law(words="", sizes=(1e4, 3.1e4, 1e5), tried=(0.004, 0.008, 0.016)):
    longest, _, shape = (words or "8e5").partition(",")
    D = [float(longest) / part for part in (4, 2, 1)]
    shape = shape or "cosine"
    # Our warm-up is a tenth of the shortest training; that of a cosine a twentieth of its own.
    warmup = round(min(D) / (8 * CONTEXT)) // 10 if shape == "wsd" else None
    theirs, slow = {}, 0.0

    def by_hand(cells):
        nonlocal slow
        started = time.perf_counter()
        for size, tokens in cells:
            ends = [bare_training(size, tokens, lr, shape, warmup) for lr in tried]
            theirs[size, tokens] = min(ends)
        slow += time.perf_counter() - started

    # Half of the loop's runs come before ours and half after, as the host's speed varies.
    cells = [(size, tokens) for size in sizes for tokens in D]
    by_hand(cells[::2])
    started = time.perf_counter()
    recipe = al.study.recipes.cooled(al.study.recipes.transformer)
    study = al.study.Study(TEXT, [recipe], sizes, seeds=1, tokens=list(D))
    each = sum(spec().budget().C for spec in study.specs())
    with tempfile.TemporaryDirectory() as folder:
        trials = Path(folder) / "rates"
        study = al.study.recipes.carried(study, trials, tried)
        trial = al.study.Runs(trials).frame().iloc[0]
        chosen = time.perf_counter() - started
        main = Path(folder) / "law"
        frame = study.run(main, schedule=study.schedule(main)).frame()
    quick = time.perf_counter() - started
    by_hand(cells[1::2])
    gaps = []
    for (size, tokens), loss in theirs.items():
        near = frame.iloc[(frame["D"] - tokens).abs().argsort()]
        mine = near[near["rung"] == list(sizes).index(size)].iloc[0]["loss"]
        gaps.append(mine - loss)
        print(f"N about {size:,.0f}, D {tokens:,.0f}: loop {loss:.3f}, ours {mine:.3f}")
    se = np.std(gaps, ddof=1) / math.sqrt(len(gaps))
    print(f"ours - loop: mean {np.mean(gaps):+.4f} (se {se:.4f}), at most {max(gaps):+.4f}")
    spent = flops(study) + trial["C_tuning"]
    print(
        f"rate {trial['lr']:g} chosen in {chosen:.1f} s, of {trial['rates']}; FLOPs: loop "
        f"{len(tried) * each:.3g}, ours {spent:.3g}: {len(tried) * each / spent:.2f}x fewer"
    )
    print(f"wall time: loop {slow:.1f} s, ours {quick:.1f} s: {slow / quick:.2f}x")


def main():
    if sys.argv[1:2] == ["worker"]:
        kind, size, steps, batch = sys.argv[2:]
        worker(kind, float(size), int(steps), int(batch))
        return
    if sys.argv[1:2] == ["points-worker"]:
        points_worker(*sys.argv[2:])
        return
    parts = {"overhead": overhead, "compile": compile_all, "tokens": tokens, "points": points}
    parts |= {"cores": cores, "schedule": schedule, "rates": rates, "same": same, "law": law}
    for word in sys.argv[1:] or parts:
        name, _, options = word.partition("=")
        print(f"## {word}", flush=True)
        parts[name](*filter(None, [options]))


if __name__ == "__main__":
    needs.run(main)
