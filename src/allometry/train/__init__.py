"""Training: objectives, optimiser, schedule, budget, loop, checkpoint."""

from allometry._core.deprecation import moved
from allometry.train.budget import (
    Budget,
    Flops,
    count_flops,
    count_parameters,
    count_training_flops,
)
from allometry.train.callbacks import hugging_face_callback, lightning_callback
from allometry.train.device import DeviceSettings
from allometry.train.distributed import Group
from allometry.train.early_stopping import EarlyStopping
from allometry.train.evaluate import evaluate, token_losses
from allometry.train.loop import Curve, Progress, Trained, descend, minimise, train
from allometry.train.lr_schedule import branch_step, log_spaced, warmup_decay
from allometry.train.muon import Muon, muon
from allometry.train.objectives import negative_log_likelihood, next_token, squared_error
from allometry.train.optimiser import adamw, parameter_groups, proportional
from allometry.train.packed.batched_trainer import BatchedTrainer, TrainingResult
from allometry.train.packed.stack import StackedModels, StackedStep, together
from allometry.train.packed.trace import TracedStep
from allometry.train.training import Training

__all__ = [
    "BatchedTrainer",
    "Budget",
    "Curve",
    "DeviceSettings",
    "EarlyStopping",
    "Flops",
    "Group",
    "Muon",
    "Progress",
    "StackedModels",
    "StackedStep",
    "TracedStep",
    "Trained",
    "Training",
    "TrainingResult",
    "adamw",
    "branch_step",
    "count_flops",
    "count_parameters",
    "count_training_flops",
    "descend",
    "evaluate",
    "hugging_face_callback",
    "lightning_callback",
    "log_spaced",
    "minimise",
    "muon",
    "negative_log_likelihood",
    "next_token",
    "parameter_groups",
    "proportional",
    "squared_error",
    "together",
    "token_losses",
    "train",
    "warmup_decay",
]

__getattr__ = moved(
    __name__,
    dict(  # noqa: C408 - names, not strings
        Crowd="BatchedTrainer",
        Ended="TrainingResult",
        Judge="EarlyStopping",
        On="DeviceSettings",
        Packed="StackedModels",
        Stepper="StackedStep",
        Traced="TracedStep",
    ),
)
