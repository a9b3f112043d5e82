"""Run an exported checkpoint in the stock library and compare it with the original."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, final

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from allometry._core.errors import require_extra
from allometry.construct.stock.stock_checkpoint import DTYPES, Checkpoint
from allometry.models.transformer.block import FeedForward
from allometry.models.transformer.model import Block, Transformer

NEURONS = ("mlp.c_fc", "intermediate.dense", "mlp.gate_proj")
"""Names of the linear maps before the activations, in GPT-2, in BERT and MPNet, in Llama."""


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
        inner: Largest absolute difference of the input of a neuron, for constructions: their
            neurons have margins of 0.5.
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
    inner: float
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
            ("inputs of neurons", f"differ by at most {self.inner:.2g}"),
            ("loaded as", f"{self.architecture} by {self.runtime}, without custom code"),
            ("precision", f"{self.precision} (needs {self.needs})"),
            ("layers", f"{self.layers}, width {self.width}"),
            ("parameters", f"{self.parameters:,}"),
        ]
        return "\n".join(f"{name:<17} {value}" for name, value in rows)


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


@final
@dataclass(frozen=True)
class Compared:
    """How outputs of a loaded checkpoint differ from the original's.

    Attributes:
        total: Answers compared.
        wrong: Answers that differ.
        difference: Largest difference of an output.
        inner: Largest difference of the input of a neuron.
    """

    total: int
    wrong: int
    difference: float
    inner: float


@final
@dataclass(frozen=True)
class Reference:
    """Outputs of the original on a batch, and the inputs of its neurons.

    Attributes:
        tokens: The batch.
        outputs: Outputs.
        neurons: Inputs of neurons, (b, n, r) for each layer; empty if they are not compared.
    """

    tokens: Tensor
    outputs: Tensor
    neurons: list[Tensor]


def references(model: Transformer, samples: list[Tensor], *, inner: bool) -> list[Reference]:
    """The outputs of the original on samples, and with `inner` the inputs of its neurons."""
    found = []
    parts = [b.feed_forward for b in model.blocks if isinstance(b, Block)]
    dense = [part for part in parts if isinstance(part, FeedForward)] if inner else []

    seen: list[Tensor] = []

    def record(part: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        assert isinstance(part, FeedForward)
        seen.append(functional.linear(inputs[0], part.inner, part.inner_bias))

    with torch.no_grad():
        for tokens in samples:
            seen.clear()
            handles = [part.register_forward_pre_hook(record) for part in dense]
            try:
                found.append(Reference(tokens, model(tokens), list(seen)))
            finally:
                for handle in handles:
                    handle.remove()
    return found


def compare(
    theirs: Any,
    checkpoint: Checkpoint,
    model: Transformer,
    truth: list[Reference],
    answer: Callable[[Tensor], Tensor],
    most: Callable[[Compared], bool] = lambda _: True,
) -> Compared:
    """Compare the outputs of a loaded checkpoint with the original's.

    Args:
        theirs: The loaded checkpoint, in any precision.
        checkpoint: What was loaded.
        model: The original.
        truth: Its outputs on samples.
        answer: What is decided by the outputs; real outputs must agree to 1e-4.
        most: Whether differences so far are allowed: the first batch after which they are not is
            the last one.
    """
    result = Compared(0, 0, 0.0, 0.0)
    table = torch.tensor(checkpoint.ids)
    layers = [i + checkpoint.before for i in range(model.depth) if _dense(model, i)]
    modules = [m for name, m in theirs.named_modules() if name.endswith(NEURONS)]
    for batch in truth:
        seen: list[Tensor] = []
        hooks = [
            modules[i].register_forward_hook(lambda _m, _x, out, seen=seen: seen.append(out))
            for i in (layers if batch.neurons else [])
        ]
        with torch.no_grad():
            if checkpoint.inputs is not None:
                embedded = (batch.tokens.mT.double() @ checkpoint.inputs).to(theirs.dtype)
                out = theirs(inputs_embeds=embedded).logits
                out = out.mT if model.columns else out
            else:
                out = theirs(input_ids=table[batch.tokens]).logits
        for hook in hooks:
            hook.remove()
        ours = batch.outputs
        out = out.to(ours.dtype)
        a, b = answer(out), answer(ours)
        same = (a - b).abs() <= 1e-4 if a.is_floating_point() else a == b
        inner = [
            float((x[..., : y.shape[-1]].to(y.dtype) / checkpoint.steep - y).abs().max())
            for x, y in zip(seen, batch.neurons, strict=True)
            if y.shape[-1]
        ]
        result = Compared(
            result.total + a.numel(),
            result.wrong + int((~same).sum()),
            max(result.difference, float((out - ours).abs().max())),
            max([result.inner, *inner]),
        )
        if not most(result):
            break
    return result


def _dense(model: Transformer, layer: int) -> bool:
    block = model.blocks[layer % len(model.blocks)]
    return isinstance(block, Block) and isinstance(block.feed_forward, FeedForward)


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
