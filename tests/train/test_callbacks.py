"""Forecasts inside loops of others: a plain loop, Optuna, Hugging Face and Lightning."""

from types import SimpleNamespace

import pytest

import allometry as al

HOPELESS = [(step, 2 + 30 / step) for step in range(100, 1001, 100)]


def test_a_plain_loop_stops_what_is_hopeless_and_reports_divergence():
    said = []
    watcher = al.laws.Watcher(1000, beat=1.0, report=said.append)
    states = [watcher.update(*point) for point in HOPELESS]
    assert states[-1].stop
    assert not states[0].stop
    assert not said
    assert watcher.update(1000, float("nan")).stop
    assert "diverged" in said[0]
    assert not any(al.laws.Watcher(1000, beat=10.0).update(*p).stop for p in HOPELESS)


def test_optuna_prunes_a_trial_that_cannot_become_the_best():
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)

    def objective(trial):
        floor = (1.0, 3.0)[min(trial.number, 1)]
        for step in range(100, 1001, 100):
            trial.report(floor + 30 / step, step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return floor + 0.03

    study = optuna.create_study(pruner=al.laws.optuna_pruner(1000))
    study.optimize(objective, n_trials=2)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "PRUNED"]


def test_hugging_face_is_told_to_stop():
    transformers = pytest.importorskip("transformers")
    callback = al.train.hugging_face_callback(beat=1.0, report=lambda text: None)
    assert isinstance(callback, transformers.TrainerCallback)
    control = SimpleNamespace(should_training_stop=False)
    for step, loss in HOPELESS:
        state = SimpleNamespace(global_step=step, max_steps=1000)
        callback.on_log(None, state, control, logs={"eval_loss": loss})
    assert control.should_training_stop
    assert callback.state.final.covers(2.03)


def test_lightning_is_told_to_stop():
    lightning = pytest.importorskip("pytorch_lightning")
    callback = al.train.lightning_callback(beat=1.0, report=lambda text: None)
    assert isinstance(callback, lightning.Callback)
    trainer = SimpleNamespace(should_stop=False, estimated_stepping_batches=1000)
    for step, loss in HOPELESS:
        trainer.global_step, trainer.callback_metrics = step, {"val_loss": loss}
        callback.on_validation_end(trainer, None)
    assert trainer.should_stop


def test_the_trainer_of_hugging_face_stops_with_it(tmp_path):
    """A real `Trainer` whose loss stays near 1, against a loss to beat of 0.001."""
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    torch = pytest.importorskip("torch")

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def forward(self, x, labels=None):
            return {"loss": ((x * self.weight - labels) ** 2).mean()}

    rng = torch.Generator().manual_seed(0)
    noise = [torch.randn(1, generator=rng) for _ in range(64)]
    rows = [{"x": torch.ones(1), "labels": value} for value in noise]
    callback = al.train.hugging_face_callback(beat=0.001, report=lambda text: None)
    options = transformers.TrainingArguments(
        str(tmp_path), max_steps=200, eval_strategy="steps", eval_steps=5, report_to=[],
        save_strategy="no", disable_tqdm=True, use_cpu=True, logging_strategy="no",
        per_device_train_batch_size=8, per_device_eval_batch_size=64,
    )  # fmt: skip
    trainer = transformers.Trainer(
        Model(), options, train_dataset=rows, eval_dataset=rows, callbacks=[callback]
    )
    trainer.train()
    assert 0 < trainer.state.global_step < 200
    assert callback.state.stop


@pytest.mark.filterwarnings("ignore")
def test_the_trainer_of_lightning_stops_with_it(tmp_path):
    lightning = pytest.importorskip("pytorch_lightning")
    torch = pytest.importorskip("torch")

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def training_step(self, batch, index):
            return ((self.weight - batch[0]) ** 2).mean()

        def validation_step(self, batch, index):
            self.log("val_loss", ((self.weight - batch[0]) ** 2).mean())

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.001)

    rows = torch.randn(64, 1, generator=torch.Generator().manual_seed(0))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows), batch_size=8)
    callback = al.train.lightning_callback(beat=0.001, report=lambda text: None)
    trainer = lightning.Trainer(
        max_epochs=40, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=[callback],
        default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(Module(), loader, loader)
    assert 0 < trainer.global_step < 320
    assert callback.forecast_state.stop
