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
