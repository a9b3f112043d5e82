"""Published figures on public runs."""

import csv
import json

import numpy as np
import pytest

import allometry as al


def test_likelihood_fit_of_the_chinchilla_points(epoch):
    law = al.laws.fit(epoch, "chinchilla", drop_highest=5, bootstrap=0, delta=0.0)
    printed = {"A": 482.01, "B": 2085.43, "E": 1.8169, "alpha": 0.34781, "beta": 0.36585}
    for name, value in printed.items():
        # Half a unit of the last digit printed is 2e-5 of most; the published optimiser stopped
        # a hair before the optimum.
        assert law.params[name].value == pytest.approx(value, rel=1e-4), name


PRINTED = {
    "A": (124.52, 285.2, 743.6),
    "B": (1293.28, 1042.4, 5810.3),
    "E": (0.02566, 1.769, 1.871),
    "alpha": (0.01540, 0.317, 0.373),
    "beta": (0.02060, 0.331, 0.415),
}
"""Standard error and 95 % interval as published: 4,000 pairs bootstraps of Huber's loss with delta
1e-3, drawn with seed 42 (the point values beside them are those of the Laplace likelihood)."""


@pytest.mark.parametrize("seed", [0, 42])  # the default, and the one it stands for
def test_bootstrap_of_the_chinchilla_points_draw_for_draw(epoch, seed):
    law = al.laws.fit(epoch, "chinchilla", drop_highest=5, bootstrap=4000, seed=seed)
    for name, (se, lo, hi) in PRINTED.items():
        e = law.params[name]
        # The same resamples: what is left is where the published optimiser stopped and the
        # digits that were printed.
        assert e.se == pytest.approx(se, rel=1e-3), name
        assert e.lo == pytest.approx(lo, rel=4e-3), name
        assert e.hi == pytest.approx(hi, rel=2e-3), name


def test_bootstrap_of_the_chinchilla_points_with_other_draws(epoch):
    law = al.laws.fit(epoch, "chinchilla", drop_highest=5, bootstrap=12000, seed=1)
    for name, (se, lo, hi) in PRINTED.items():
        e = law.params[name]
        # Over eight seeds of 4,000 draws B's standard error ranges from 0.98 to 1.13 of the one
        # printed and its lower end from 1.03 to 1.07: the printed draws lie a little low.
        long = name == "B"
        assert e.se == pytest.approx(se, rel=0.10 if long else 0.05), name
        assert e.lo == pytest.approx(lo, rel=0.08 if long else 0.03), name
        assert e.hi == pytest.approx(hi, rel=0.05 if long else 0.03), name


def test_plan_for_chinchillas_budget(epoch):
    law = al.laws.fit(epoch, "chinchilla", drop_highest=5, bootstrap=1000)
    plan = law.plan(compute=5.76e23)
    assert plan.N.value == pytest.approx(73.2e9, rel=0.01)
    # "About 52 to 112B": a bootstrap's ends are good to a few percent.
    assert plan.N.lo == pytest.approx(52e9, rel=0.1)
    assert plan.N.hi == pytest.approx(112e9, rel=0.1)
    assert 0 <= plan.lost.value < 0.05 * 5.76e23


def tied(N, D, E=2.0, A=300.0, B=300.0, alpha=0.3):
    return E + A / N**alpha + B / D**alpha


def test_overtraining_figures(shared_data):
    with (shared_data / "gadre_overtraining" / "runs_104.csv").open() as file:
        runs = [r for r in csv.DictReader(file) if r["dataset_name"] == "rpj"]

    def take(keep):
        rows = [r for r in runs if keep(float(r["N"]), float(r["tok_mult"]))]
        names = {"N": "N", "D": "D", "loss": "loss_c4_val", "error": "err_avg_subset"}
        return {k: np.array([float(r[v]) for r in rows]) for k, v in names.items()}

    small = take(lambda N, M: (M == 20 and N < 1e9) or (M == 320 and N < 2e7))
    law = al.laws.fit(small, tied, bootstrap=0, raw=True, delta=float("inf"), starts=64)
    six = take(lambda N, M: (M == 20 and N < 2e9) or (M == 320 and N < 2e7))
    curve = al.laws.task_curve(six["loss"], six["error"], shape="decay", bootstrap=0)
    for keep, loss_error, task_error in (
        (lambda N, M: 1e9 < N < 2e9 and M == 640, 0.7103, 3.6365),
        (lambda N, M: N > 2e9 and M == 20, 0.7320, 0.0464),
    ):
        big = take(keep)
        at = law(N=big["N"], D=big["D"])
        assert 100 * abs(at / big["loss"] - 1)[0] == pytest.approx(loss_error, abs=1e-3)
        assert 100 * abs(curve(at) / big["error"] - 1)[0] == pytest.approx(task_error, abs=1e-3)


OLMO = {
    "mmlu": (0.18, 0.6704),
    "hellaswag_val": (-1.17, 2.5399),
    "arc_challenge_test": (9.44, 17.4506),
    "arc_easy_test": (15.98, 11.3915),
    "piqa_val": (-2.67, 1.0599),
    "csqa_val": (-18.46, 4.7308),
    "socialiqa_val": (3.63, 2.6763),
    "openbookqa_test": (0.93, 7.7616),
}
WEIGHTS = {"stem": 0.215, "humanities": 0.335, "social_sciences": 0.219, "other": 0.231}


def ladder_run(path, task):
    """Tokens, bits per byte and accuracy of each row of a W&B export."""
    names = [f"mmlu_{k}_test" for k in WEIGHTS] if task == "mmlu" else [task]
    weights = list(WEIGHTS.values()) if task == "mmlu" else [1.0]
    with path.open() as file:
        rows = list(csv.DictReader(file))

    def column(keys):
        return np.array([np.average([float(r[k]) for k in keys], weights=weights) for r in rows])

    if "throughput/total_tokens" in rows[0]:
        tokens = np.array([float(r["throughput/total_tokens"]) for r in rows])
    else:
        tokens = np.array([float(r["_step"]) * float(r["batch_size_in_tokens"]) for r in rows])
    bits = column([f"eval/downstream_bpb/{n}_rc_5shot_bpb" for n in names])
    return tokens, bits, column([f"eval/downstream/{n}_rc_5shot_len_norm" for n in names])


def smooth(a, n=5):
    return np.array([a[max(0, i - n + 1) : i + 1].mean() for i in range(len(a))])


@pytest.mark.parametrize("task", OLMO)
def test_ladder_predicts_thirteen_billion_as_published(shared_data, task):
    folder = shared_data / "olmo_ladder"
    runs = {"N": [], "D": [], "loss": []}
    bits, scores = [], []
    target = None
    for name, config in json.loads((folder / "config_final.json").read_text()).items():
        for path in config["paths"]:
            tokens, bpb, acc = ladder_run(folder / "ladder-runs" / path.split("/")[-1], task)
            if config["mode"] == "train":
                runs["N"].append(config["n"])
                runs["D"].append(tokens[-1])
                runs["loss"].append(bpb[-5:].mean())
                skip = int(np.ceil(0.1 * len(bpb)))
                bits += list(smooth(bpb[skip:]))
                scores += list(smooth(acc[skip:]))
            elif name.startswith("13B"):
                target = (config["n"], tokens[-1], bpb[-5:].mean(), smooth(acc)[-1])
    law = al.laws.fit(runs, "chinchilla", bootstrap=0)
    at = float(law(N=target[0], D=target[1]))
    loss_error, chained = OLMO[task]
    assert 100 * (at / target[2] - 1) == pytest.approx(loss_error, abs=0.05)
    curve = al.laws.task_curve(bits, scores, perfect=1.0, bootstrap=0)
    assert 100 * abs(float(curve(at)) / target[3] - 1) == pytest.approx(chained, abs=0.1)


@pytest.mark.parametrize(
    ("experiment", "theirs"),
    [("ml_scalefit__massivetext__chinchilla", 13.10), ("llama_3__raw_loss", 2.28)],
)
def test_isoflop_sets_fit_no_worse_than_variable_projection(shared_data, experiment, theirs):
    path = shared_data / "openathena_isoflops" / "isoflops_extract.csv"
    with path.open() as file:
        rows = [r for r in csv.DictReader(file) if r["experiment"] == experiment]
    names = {"N": "params", "D": "tokens", "loss": "loss"}
    runs = {k: np.array([float(r[v]) for r in rows]) for k, v in names.items()}
    # Theirs is Huber's loss of the loss itself, not of its log (which would be three times less).
    law = al.laws.fit(runs, "chinchilla", bootstrap=0, raw=True)
    gap = np.abs(law(N=runs["N"], D=runs["D"]) - runs["loss"])
    mean = np.where(gap <= 1e-3, gap**2 / 2, 1e-3 * (gap - 5e-4)).mean()
    assert mean == pytest.approx(law.objective / law.n, rel=1e-9)
    assert mean * 1e6 <= theirs * 1.005
    assert mean * 1e6 >= theirs * 0.995  # the same optimum, not another loss


PUBLISHED = {
    25: (
        0.99880,
        3.04045406,
        0.52468604,
        0.50786857,
        363.78751622,
        2.06560812,
        0.58279013,
        0.64142,
    ),
    100: (
        0.99830,
        2.6514477,
        0.60115152,
        0.45295811,
        437.9464276,
        2.13245612,
        0.59785199,
        0.65524,
    ),
    400: (0.99776, 2.374745, 0.654212, 0.428787, 523.42464, 2.024627, 0.593505, 0.634725),
}
"""Mean R2 over six schedules, and the parameters behind it."""

AHEAD = (
    *("wsd_20000_24000", "wsdld_20000_24000", "wsdcon_3", "wsdcon_18"),
    *("constant_72000", "cosine_72000"),
)


@pytest.mark.parametrize("size", PUBLISHED)
def test_multi_power_law_predicts_other_schedules(shared_data, size):
    folder = shared_data / "multipowerlaw" / "loss_curve_repo" / f"csv_{size}"

    def load(name):
        with (folder / f"{name}.csv").open() as file:
            rows = list(csv.DictReader(file))
        return al.laws.LossCurve(
            *(np.array([float(r[k]) for r in rows]) for k in ("step", "lr", "loss"))
        )

    def score(law):
        scores = []
        for name in AHEAD:
            curve = load(name)
            rest = law(curve.step, curve.lr) - curve.loss
            scores.append(1 - (rest**2).sum() / ((curve.loss - curve.loss.mean()) ** 2).sum())
        return np.mean(scores)

    published, *theta = PUBLISHED[size]
    # Their parameters in our form: what is left is the rate between two logged steps, which they
    # know to the step and we interpolate.
    theirs = al.laws.MultiPowerLaw(*theta, warmup=2160)
    assert score(theirs) == pytest.approx(published, abs=3e-4)
    seen = [load(name) for name in ("constant_24000", "cosine_24000", "wsdcon_9")]
    law = al.laws.fit_schedule(seen, warmup=2160)
    # Their 200 steps of Adam stop at more than twice our objective and do a little better on the
    # long cosine for it; on the mean of the six we are within 5e-4 either way.
    assert score(law) > published - 6e-4
    assert law.starts == (2, 2)

    def huber(law):
        r = np.concatenate([np.log(law(c.step, c.lr) / c.loss) for c in seen])
        return np.where(np.abs(r) <= 1e-3, r**2 / 2, 1e-3 * (np.abs(r) - 5e-4)).sum()

    assert huber(law) == pytest.approx(law.objective, rel=1e-9)
    assert huber(law) < huber(theirs)
    # Intervals for schedules that were not fitted: six curves, so 90 % of the points is
    # consistent with 95 % for six autocorrelated curves, and narrow enough to be useful.
    inside, width = [], []
    for name in AHEAD:
        curve = load(name)
        lo, mid, hi = law.band(curve.step, curve.lr)
        inside.append(((lo <= curve.loss) & (curve.loss <= hi)).mean())
        width.append(np.median((hi - lo) / mid))
    assert np.mean(inside) >= 0.9
    assert max(width) < 0.03
    assert law.params["alpha"].lo < law.alpha < law.params["alpha"].hi


def test_broken_law_on_four_digit_addition(shared_data):
    with (shared_data / "bnsl" / "four_digit_addition.csv").open() as file:
        rows = list(csv.DictReader(file))
    x = np.array([float(r["train_size"]) for r in rows])
    y = np.array([float(r["test_ce"]) for r in rows])
    seen = np.array([r["train"] == "1" for r in rows])
    law = al.laws.fit({"D": x[seen], "loss": y[seen]}, "broken", bootstrap=0, delta=float("inf"))
    error = np.log(law(D=x[~seen]) / y[~seen])
    # The reference extrapolates with 0.01092 after a long search, minimising errors of log(1 + y);
    # ours are of log y, whose optimum lies a hair away.
    assert np.sqrt((error**2).mean()) < 0.0115
    assert law.starts.agree > 0.9 * law.starts.tried
