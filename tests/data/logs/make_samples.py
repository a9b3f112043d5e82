"""Write small log files by the libraries that users have: `python make_samples.py KIND [FOLDER]`.

The files here were written by it, each kind in an environment with its library; `versions.json`
has the versions. What is logged follows L = 1.7 + 400 N^-0.34 + 410 D^-0.28, so the tests compare
what is read with `runs()`. Hugging Face's Trainer, Lightning, Keras and nanoGPT train tiny models;
what they must give is counted by hooks and stored in `trained.json`.
"""

import contextlib
import importlib.metadata
import io
import json
import os
import random
import shutil
import sys
import warnings
from pathlib import Path

HERE = Path(__file__).parent
SIZES = (1_000_000, 4_000_000, 16_000_000)
DATA = (20_971_520, 83_886_080, 335_544_320)
BATCH, LENGTH = 64, 1024
EVALUATIONS = 4


def loss(n, d):
    """The law that the logs follow."""
    return 1.7 + 400 * n**-0.34 + 410 * d**-0.28


def runs():
    """Name, parameters, tokens and evaluations (step, tokens, loss) of each run."""
    for n in SIZES:
        for d in DATA:
            steps = d // (BATCH * LENGTH)
            points = [
                (s, s * BATCH * LENGTH, loss(n, s * BATCH * LENGTH))
                for s in (steps * (i + 1) // EVALUATIONS for i in range(EVALUATIONS))
            ]
            yield f"gpt-n{n}-d{d}", n, d, points


def record(*names):
    """Note the versions of the libraries that wrote a sample."""
    path = HERE / "versions.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    known |= {name: importlib.metadata.version(name) for name in names}
    path.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n")


def truth(kind, rows):
    """Store what trained runs must give."""
    path = HERE / "trained.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(known | {kind: rows}, indent=1) + "\n")


def settings(n):
    """A nested configuration as people log it."""
    return {
        "model": {"n_params": n, "arch": "gpt"},
        "data": {"batch_size": BATCH, "seq_len": LENGTH},
        "seed": 0,
        "lr": 3e-4,
    }


def flat(tree, sign):
    """Nested settings with joined names."""
    out = {}
    for name, value in tree.items():
        inner = flat(value, sign) if isinstance(value, dict) else None
        out |= (
            {name: value} if inner is None else {f"{name}{sign}{k}": v for k, v in inner.items()}
        )
    return out


def make_wandb(folder):
    """Offline runs: `wandb/offline-run-*/run-*.wandb`."""
    import wandb

    for _, n, d, points in runs():
        run = wandb.init(
            project="ladder",
            dir=folder,
            mode="offline",
            name=f"gpt-n{n}-d{d}",
            config=settings(n),
            settings=wandb.Settings(
                disable_git=True, disable_code=True, console="off", x_disable_stats=True,
                x_disable_meta=True, save_code=False, silent=True, x_disable_machine_info=True,
            ),
        )  # fmt: skip
        for step, tokens, value in points:
            wandb.log({"train/loss": value - 0.02, "tokens": tokens}, step=step - 1)
            wandb.log({"eval/loss": value, "lr": 3e-4}, step=step)
        run.finish()
    for path in [*folder.rglob("*.log"), *folder.rglob("requirements.txt")]:
        path.unlink()
    for path in folder.rglob("*"):
        if path.is_symlink():
            path.unlink()
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
    record("wandb")


def make_tensorboard(folder):
    """One folder of events for each run, with hyperparameters."""
    from torch.utils.tensorboard import SummaryWriter

    for name, n, _, points in runs():
        writer = SummaryWriter(folder / name)
        writer.add_hparams(flat(settings(n), "/"), {"hparam/done": 1.0}, run_name=".")
        for step, tokens, value in points:
            writer.add_scalar("train/loss", value - 0.02, step - 1)
            writer.add_scalar("train/tokens", tokens, step)
            writer.add_scalar("val/loss", value, step)
        writer.close()
    record("tensorboard", "torch")


def make_mlflow(folder, store=None):
    """A file store (`mlruns`)."""
    import mlflow

    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    mlflow.set_tracking_uri(store or (folder / "mlruns").as_uri())
    mlflow.set_experiment("ladder")
    for name, n, _, points in runs():
        with mlflow.start_run(run_name=name):
            mlflow.log_params(flat(settings(n), "."))
            for step, tokens, value in points:
                mlflow.log_metrics({"train_loss": value - 0.02}, step=step - 1)
                mlflow.log_metrics({"val_loss": value, "tokens": tokens}, step=step)


def make_mlflow_files(folder):
    """MLflow's file store."""
    make_mlflow(folder)
    for path in list(folder.rglob("*")):
        if path.is_dir() and path.name in (".trash", "models"):
            shutil.rmtree(path)
    record("mlflow")


def make_mlflow_sqlite(folder):
    """MLflow's SQLite store, `mlflow.db`."""
    with contextlib.chdir(folder):
        make_mlflow(folder, "sqlite:///mlflow.db")
    for path in folder.iterdir():
        if path.name != "mlflow.db":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    import sqlite3

    with contextlib.closing(sqlite3.connect(folder / "mlflow.db")) as base:
        keep = {"runs", "params", "metrics", "latest_metrics", "tags", "experiments"}
        base.execute("pragma foreign_keys=off")
        names = [r[0] for r in base.execute("select name from sqlite_master where type='table'")]
        for name in names:
            if name not in keep and not name.startswith("sqlite_"):
                base.execute(f"drop table {name}")  # empty tables of other features: 800 kB
        base.commit()
        base.execute("vacuum")


def make_lightning(folder):
    """Lightning's CSVLogger: `lightning_logs/version_*/metrics.csv` and `hparams.yaml`."""
    import lightning
    import torch
    from lightning.pytorch.loggers import CSVLogger
    from torch.utils.data import DataLoader, TensorDataset

    class Net(lightning.LightningModule):
        def __init__(self, width, batch_size=16, seq_len=8):
            super().__init__()
            self.save_hyperparameters()
            self.net = torch.nn.Sequential(
                torch.nn.Linear(8, width), torch.nn.Tanh(), torch.nn.Linear(width, 1)
            )
            self.tokens = 0

        def loss(self, batch):
            return torch.nn.functional.mse_loss(self.net(batch[0]), batch[1]) + 0.5

        def training_step(self, batch, _):
            self.tokens += batch[0].numel()
            loss = self.loss(batch)
            self.log("train_loss", loss)
            self.log("n_params", float(sum(p.numel() for p in self.parameters())))
            return loss

        def validation_step(self, batch, _):
            self.log("val_loss", self.loss(batch))

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), 0.01)

    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    x = torch.randn(512, 8)
    y = x.prod(1, keepdim=True).tanh()
    rows = []
    for i, (width, steps) in enumerate((w, s) for w in (4, 16, 64) for s in (40, 80, 160)):
        torch.manual_seed(i)
        net = Net(width)
        trainer = lightning.Trainer(
            max_steps=steps,
            logger=CSVLogger(folder),
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            val_check_interval=20,
            check_val_every_n_epoch=None,
            num_sanity_val_steps=0,
            log_every_n_steps=10,
            accelerator="cpu",
        )
        loader = DataLoader(TensorDataset(x, y), 16, shuffle=True)
        trainer.fit(net, loader, DataLoader(TensorDataset(x, y), 512))
        value = float(trainer.callback_metrics["val_loss"])
        size = sum(p.numel() for p in net.parameters())
        rows.append({"N": size, "D": net.tokens, "loss": value})
    truth("lightning", rows)
    record("lightning")


def make_trackio(folder):
    """trackio's SQLite database of a project."""
    os.environ["TRACKIO_DIR"] = str(folder)
    import trackio

    for name, n, _, points in runs():
        trackio.init(project="ladder", name=name, config=flat(settings(n), "."), embed=False)
        for step, tokens, value in points:
            trackio.log({"train/loss": value - 0.02}, step=step - 1)
            trackio.log({"eval/loss": value, "tokens": tokens}, step=step)
        trackio.finish()
    record("trackio")


def make_aim(folder):
    """Values of all metrics by Aim's SDK, `Metric.dataframe`, as one CSV file."""
    import tempfile

    import aim
    import pandas

    place, parts = tempfile.mkdtemp(), []
    for _, n, _, points in runs():
        run = aim.Run(
            repo=place,
            system_tracking_interval=None,
            capture_terminal_logs=False,
            log_system_params=False,
        )
        run["hparams"] = settings(n)
        for step, tokens, value in points:
            run.track(value - 0.02, name="loss", step=step - 1, context={"subset": "train"})
            run.track(value, name="loss", step=step, context={"subset": "val"})
            run.track(tokens, name="tokens", step=step)
        parts += [
            metric.dataframe(include_run=True, include_name=True, include_context=True)
            for metric in run.metrics()
        ]
        run.close()
    pandas.concat(parts).to_csv(folder / "metrics.csv", index=False)
    record("aim")


def make_huggingface(folder):
    """Hugging Face's Trainer: a folder of runs, each with checkpoints and a last state."""
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    rows = []
    vocabulary, length = 32, 16
    generator = torch.Generator().manual_seed(0)
    chain = torch.rand(vocabulary, vocabulary, generator=generator) ** 4
    text = torch.zeros(400, length, dtype=torch.long)
    for i in range(1, length):
        text[:, i] = torch.multinomial(chain[text[:, i - 1]], 1, generator=generator)[:, 0]
    data = [{"input_ids": row, "labels": row} for row in text]
    for width in (8, 16, 32):
        for steps in (20, 40, 80):
            out = folder / f"w{width}-s{steps}"
            config = transformers.GPT2Config(
                vocab_size=vocabulary, n_positions=length, n_embd=width, n_layer=1, n_head=2
            )
            transformers.set_seed(0)
            model = transformers.GPT2LMHeadModel(config)
            counted = width == 32  # the other runs leave the tokens to the FLOPs
            arguments = transformers.TrainingArguments(
                output_dir=str(out), max_steps=steps, per_device_train_batch_size=8,
                eval_strategy="steps", eval_steps=10, save_steps=steps // 2, logging_steps=10,
                learning_rate=1e-2, report_to=[], disable_tqdm=True, use_cpu=True,
                include_num_input_tokens_seen="all" if counted else "no", save_only_model=False,
            )  # fmt: skip
            seen = {"tokens": 0}

            def collate(batch, seen=seen, model=model):
                made = transformers.default_data_collator(batch)
                if model.training:
                    seen["tokens"] += made["input_ids"].numel()
                return made

            trainer = transformers.Trainer(
                model=model, args=arguments, train_dataset=data[:360], eval_dataset=data[360:],
                data_collator=collate,
            )  # fmt: skip
            with contextlib.redirect_stdout(io.StringIO()):
                trainer.train()
            value = trainer.state.log_history
            value = [row["eval_loss"] for row in value if "eval_loss" in row][-1]
            if width == 32:
                trainer.save_state()
            if width == 16:
                trainer.save_model()
            tokens = 8 * length * steps
            rows.append({"N": model.num_parameters(), "D": tokens, "loss": value})
    for path in folder.rglob("*"):
        keep = ("trainer_state.json", "config.json", "model.safetensors")
        if path.is_file() and path.name not in keep:
            path.unlink()
        if path.name == "model.safetensors" and ("checkpoint" in str(path)):
            path.unlink()  # their config.json gives the size
    truth("huggingface", rows)
    record("transformers")


def make_keras(folder):
    """`History.history` and `params` of Keras, written as JSON by the user."""
    os.environ["KERAS_BACKEND"] = "torch"
    import keras
    import numpy as np

    rng = np.random.default_rng(0)
    rows = []
    for width in (4, 16, 64):
        for epochs in (2, 4, 8):
            keras.utils.set_random_seed(0)
            x = rng.normal(size=(256, 8)).astype("float32")
            y = np.tanh(x.prod(1, keepdims=True))
            net = keras.Sequential([keras.layers.Dense(width, "tanh"), keras.layers.Dense(1)])
            net.compile("adam", "mse")
            made = net.fit(x, y, epochs=epochs, batch_size=32, validation_split=0.25, verbose=0)
            path = folder / f"w{width}-e{epochs}.json"
            path.write_text(json.dumps(made.history))
            rows.append({
                "run": path.stem, "N": net.count_params(), "D": epochs,
                "loss": made.history["val_loss"][-1],
            })  # fmt: skip
    (folder / "runs.yaml").write_text(
        "".join(f"{row['run']}:\n  params: {row['N']}\n" for row in rows)
    )
    truth("keras", rows)
    record("keras")


def make_excel(folder):
    """A table of runs as openpyxl writes it."""
    import openpyxl

    book = openpyxl.Workbook()
    sheet = book.active
    sheet.append(["Run", "Params (M)", "Tokens", "Eval loss", "Notes"])
    for name, n, d, points in runs():
        sheet.append([name, n / 1e6, d, points[-1][2], None])
    book.save(folder / "runs.xlsx")
    record("openpyxl")


def make_duckdb(folder):
    """A DuckDB database with a table of runs."""
    import duckdb

    with duckdb.connect(folder / "runs.duckdb") as base:
        base.execute("create table runs (name text, n bigint, d bigint, eval_loss double)")
        for name, n, d, points in runs():
            base.execute("insert into runs values (?, ?, ?, ?)", [name, n, d, points[-1][2]])
    record("duckdb")


def make_parquet(folder):
    """A W&B history in Parquet, all runs in one file."""
    import pyarrow
    import pyarrow.parquet

    rows = [
        {"run_id": name, "_step": step, "config.model.n_params": n, "tokens": tokens,
         "eval/loss": value}
        for name, n, _, points in runs()
        for step, tokens, value in points
    ]  # fmt: skip
    random.seed(0)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "history.parquet")
    record("pyarrow")


if __name__ == "__main__":
    kind = sys.argv[1]
    target = Path(sys.argv[2]) if len(sys.argv) > 2 else HERE / kind
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    globals()[f"make_{kind}"](target.resolve())
