"""Log layouts as people have them: each is written to a folder and read by one command.

Files of the libraries are in `tests/data/logs`; the others are written here in the tools' layout.
"""

import json
import sqlite3
from pathlib import Path

from tests.data.logs import make_samples

LOGS = Path(__file__).parents[1] / "data" / "logs"
TOKENS = make_samples.BATCH * make_samples.LENGTH


def written(text, name):
    """A layout of one text file."""

    def make(folder):
        (folder / name).write_text(text())
        return folder / name, []

    return make


def folder_of(log, ending=".log"):
    """A layout of one printed log for each run."""

    def make(folder):
        for name, n, _, points in make_samples.runs():
            (folder / f"{name}{ending}").write_text(log(n, points))
        return folder, []

    return make


def library(name, *options):
    """A layout whose files a library wrote."""
    return lambda _: (LOGS / name, list(options))


def rows():
    return [(name, n, d, points[-1][2]) for name, n, d, points in make_samples.runs()]


def table():
    """W&B's table of runs with nested names."""
    head = '"Name","State","Created","model.n_params","tokens","eval/loss","train/loss"\n'
    return head + "".join(
        f'"{r}","finished","2026","{n}","{d}","{v!r}","1.5"\n' for r, n, d, v in rows()
    )


def neptune():
    """Neptune's table of runs."""
    head = "sys/id,sys/name,sys/state,parameters/n_params,metrics/tokens,metrics/eval/loss\n"
    return head + "".join(
        f"A-{i},{r},Inactive,{n},{d},{v!r}\n" for i, (r, n, d, v) in enumerate(rows())
    )


def values():
    """One value per row: run, metric, step, value."""
    text = "run_id,attribute_path,step,float_value\n"
    for name, n, _, points in make_samples.runs():
        text += f"{name},config/n_params,,{n}\n"
        for step, tokens, loss in points:
            text += f"{name},train/tokens,{step},{tokens}\n{name},eval/loss,{step},{loss!r}\n"
    return text


def chart():
    """W&B's export of a chart: three columns for each run."""
    known = {f"{n // 1000000}M-{d}": {s: v for s, _, v in p} for _, n, d, p in make_samples.runs()}
    steps = sorted({step for curve in known.values() for step in curve})
    ends = ("", "__MIN", "__MAX")
    head = ['"Step"', *(f'"{run} - eval/loss{end}"' for run in known for end in ends)]
    lines = [
        ",".join([f'"{s}"', *(f'"{curve.get(s, "")}"' for curve in known.values() for _ in ends)])
        for s in steps
    ]
    return "\n".join([",".join(head), *lines]) + "\n"


def make_chart(folder):
    (folder / "chart.csv").write_text(chart())
    return folder / "chart.csv", ["--d-from", f"Step*{TOKENS}"]


def history():
    """The histories of all runs in one table."""
    head = "run_name,step,params,tokens,val_loss\n"
    return head + "".join(
        f"{name},{s},{n},{t},{v!r}\n" for name, n, _, p in make_samples.runs() for s, t, v in p
    )


def jsonl():
    keys = ("run", "model", "tokens", "loss")
    return "".join(
        json.dumps(dict(zip(keys, (r, {"n_params": n}, d, v), strict=True))) + "\n"
        for r, n, d, v in rows()
    )


def tsv():
    return "params\ttokens\tloss\n" + "".join(f"{n}\t{d}\t{v!r}\n" for _, n, d, v in rows())


def nanogpt(n, points):
    lines = [
        f"tokens per iteration will be: {TOKENS:,}",
        f"number of parameters: {n / 1e6:.2f}M",
    ]
    lines += [f"step {s}: train loss {v - 0.02:.4f}, val loss {v:.4f}" for s, _, v in points]
    return "\n".join(lines) + "\n"


def modded_nanogpt(n, points):
    total = points[-1][0]
    head = f"number of parameters: {n}\ntokens per iteration will be: {TOKENS}\n"
    return head + "".join(
        f"step:{s}/{total} val_loss:{v:.4f} train_time:{s * 90}ms step_avg:90.01ms\n"
        for s, _, v in points
    )


def torchtitan(n, points):
    head = (
        f"[titan] root - INFO - Model llama3 debugmodel size: {n:,} total parameters\n"
        "[titan] root - INFO - Trainer is initialized with local batch size 8, global batch size "
        f"64, gradient accumulation steps 1, sequence length 1024, total steps {points[-1][0]} "
        "(warmup 2)\n"
    )
    return head + "".join(
        f"\x1b[31mstep: {s:2}  \x1b[32mloss: {v:7.4f}  \x1b[33mmemory:  1.2GiB\x1b[0m\n"
        for s, _, v in points
    )


def megatron(n, points):
    head = f" number of parameters: {n}\n  global_batch_size .... 64\n  seq_length ........ 1024\n"
    total = points[-1][0]
    return head + "".join(
        f" iteration {s:8d}/{total:8d} | consumed samples: {s * 64:12d} | elapsed time per "
        f"iteration (ms): 62.1 | learning rate: 1.0E-04 | lm loss: {v:.6E} | loss scale: 1.0 |\n"
        for s, _, v in points
    )


def llm_foundry(n, points):
    total = points[-1][0]
    text = f"max_seq_len: 1024\nglobal_train_batch_size: 64\nn_params: {n}\n"
    for s, _, v in points:
        text += f"[batch={s}/{total}]:\n\t Train LanguageCrossEntropy: {v - 0.02:.4f}\n"
        text += f"\t Train loss/train/total: {v - 0.02:.4f}\n"
        text += f"\t Eval metrics/eval/LanguageCrossEntropy: {v:.4f}\n"
    return text


def make_sqlite(folder):
    with sqlite3.connect(folder / "lab.db") as base:
        base.execute("create table trials (n integer, t integer, final real, kind text)")
        made = [(n, d, v, "gpt") for _, n, d, v in rows()] + [(1, 1, 9.0, "toy")]
        base.executemany("insert into trials values (?, ?, ?, ?)", made)
    base.close()
    query = "select n as params, t as tokens, final as loss from trials where kind = 'gpt'"
    return folder / "lab.db", ["--sql", query]


def make_parquets(folder):
    """W&B histories in Parquet, one file for each run."""
    import pandas as pd

    for name, n, _, points in make_samples.runs():
        frame = pd.DataFrame(points, columns=["_step", "tokens", "eval/loss"])
        frame.assign(**{"model.n_params": n}).to_parquet(folder / f"{name}.parquet")
    return folder, []


def make_expression(folder):
    """A table without N: depth and width."""
    text = "run,depth,width,tokens,loss\n"
    for r, n, d, v in rows():
        text += f"{r},{n // 1000},10,{d},{v!r}\n"
    (folder / "shapes.csv").write_text(text)
    return folder / "shapes.csv", ["--n-from", "10*depth*width^2"]


EXACT = {
    "W&B offline": library("wandb"),
    "TensorBoard": library("tensorboard"),
    "MLflow folder": library("mlflow_files"),
    "MLflow SQLite": library("mlflow_sqlite"),
    "trackio": library("trackio"),
    "Aim": library("aim/metrics.csv"),
    "Excel": library("excel/runs.xlsx"),
    "Parquet": library("parquet/history.parquet"),
    "W&B histories in Parquet": make_parquets,
    "W&B table": written(table, "table.csv"),
    "W&B chart": make_chart,
    "W&B history": written(history, "history.csv"),
    "Neptune table": written(neptune, "neptune.csv"),
    "table of values": written(values, "values.csv"),
    "JSON lines": written(jsonl, "runs.jsonl"),
    "TSV": written(tsv, "runs.tsv"),
    "SQLite query": make_sqlite,
    "expression of columns": make_expression,
}
"""Layouts that have every digit."""

PRINTED = {
    "nanoGPT": folder_of(nanogpt),
    "modded-nanogpt": folder_of(modded_nanogpt, ".txt"),
    "torchtitan": folder_of(torchtitan),
    "Megatron": folder_of(megatron),
    "llm-foundry": folder_of(llm_foundry),
}
"""Layouts that print four decimals."""

TRAINED = {
    "huggingface": library("huggingface"),
    "lightning": library("lightning"),
}
"""Logs of models that the library trained; `trained.json` has their numbers."""
