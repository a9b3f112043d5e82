"""Run an exported checkpoint in the stock library and compare it with the original."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from allometry._core.errors import require_extra
from allometry.construct.stock.stock_checkpoint import DTYPES, Checkpoint


@final
@dataclass(frozen=True)
class ExportCertificate:
    """How an export was compared with the original.

    Attributes:
        architecture: Class in the runtime.
        runtime: Library and version.
        precision: Precision of the weights in the file.
        needs: The least precision with equal answers among those tried.
        inputs: Number of sample inputs.
        answers: Number of compared answers: tokens, labels or decisions.
        wrong: Number of different answers.
        difference: Largest absolute difference of an output.
        layers: Number of layers.
        width: Width of the residual stream.
        parameters: Number of parameters.
    """

    architecture: str
    runtime: str
    precision: str
    needs: str
    inputs: int
    answers: int
    wrong: int
    difference: float
    layers: int
    width: int
    parameters: int

    @property
    def holds(self) -> bool:
        """Whether all answers were equal."""
        return self.wrong == 0

    def to_dict(self) -> dict[str, Any]:
        """The certificate as JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        verdict = "equal" if self.holds else f"WRONG in {self.wrong:,}"
        rows = [
            ("answers", f"{verdict}, {self.answers:,} on {self.inputs:,} inputs"),
            ("outputs", f"differ by at most {self.difference:.2g}"),
            ("loaded as", f"{self.architecture} by {self.runtime}, without custom code"),
            ("precision", f"{self.precision} (needs {self.needs})"),
            ("layers", f"{self.layers}, width {self.width}"),
            ("parameters", f"{self.parameters:,}"),
        ]
        return "\n".join(f"{name:<16} {value}" for name, value in rows)


def load(folder: Path, checkpoint: Checkpoint) -> Any:
    """The model that `transformers` loads from an exported folder by an Auto class.

    Args:
        folder: The exported folder.
        checkpoint: What is in it.
    """
    transformers = require_extra("transformers", "hf")
    name = checkpoint.config["architectures"][0]
    auto = transformers.AutoModelForCausalLM
    if name.endswith("TokenClassification"):
        auto = transformers.AutoModelForTokenClassification
    dtype = DTYPES[checkpoint.precision]
    with _without_progress_bar(transformers.utils.logging):
        theirs = auto.from_pretrained(folder, dtype=dtype, local_files_only=True)
    assert type(theirs).__name__ == name
    theirs.config.use_cache = False  # whole inputs are compared
    return theirs.eval()


Compared = tuple[int, int, float]
"""Answers compared, answers that differ, and the largest difference of an output."""


def compare(
    theirs: Any,
    checkpoint: Checkpoint,
    samples: list[Tensor],
    truth: list[Tensor],
    answer: Callable[[Tensor], Tensor],
    *,
    columns: bool = False,
    most: float = math.inf,
) -> Compared:
    """Compare the outputs of a loaded checkpoint with the original's.

    Args:
        theirs: The loaded checkpoint, in any precision.
        checkpoint: What was loaded.
        samples: Inputs of the original.
        truth: Its outputs on each of them.
        answer: What is decided by the outputs; real outputs must agree to 1e-4.
        columns: Whether tokens are columns of the inputs and outputs.
        most: Largest difference of an output: the first batch beyond it, or with a different
            answer, is the last one.
    """
    total = wrong = 0
    largest = 0.0
    table = torch.tensor(checkpoint.ids)
    with torch.no_grad():
        for tokens, ours in zip(samples, truth, strict=True):
            if checkpoint.inputs is not None:
                embedded = (tokens.mT.double() @ checkpoint.inputs).to(theirs.dtype)
                out = theirs(inputs_embeds=embedded).logits
                out = out.mT if columns else out
            else:
                out = theirs(input_ids=table[tokens]).logits
            out = out.to(ours.dtype)
            largest = max(largest, float((out - ours).abs().max()))
            a, b = answer(out), answer(ours)
            same = (a - b).abs() <= 1e-4 if a.is_floating_point() else a == b
            total, wrong = total + a.numel(), wrong + int((~same).sum())
            if largest > most or (wrong and most < math.inf):
                break
    return total, wrong, largest


@contextmanager
def _without_progress_bar(log: Any) -> Iterator[None]:
    """Loading a checkpoint of a few kilobytes needs no progress bar."""
    shown = log.is_progress_bar_enabled()
    log.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            log.enable_progress_bar()


def runtime() -> str:
    """The stock library and its version."""
    return f"transformers {require_extra('transformers', 'hf').__version__}"
