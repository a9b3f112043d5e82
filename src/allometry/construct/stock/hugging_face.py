"""Write a folder that `transformers` loads by its Auto classes, without custom code."""

import json
import math
import tempfile
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from allometry._core.errors import InputError, require
from allometry._core.files import atomic_write, make_folder
from allometry.construct.stock import (
    encoder_models,
    gpt2,
    gpt_neox,
    llama,
    llama_construction,
    tokenizer_files,
)
from allometry.construct.stock.described import Described, describe
from allometry.construct.stock.equality import (
    Compared,
    ExportCertificate,
    Reference,
    compare,
    load,
    references,
    runtime,
)
from allometry.construct.stock.neutral_norm import largest_square, layout
from allometry.construct.stock.stock_checkpoint import Checkpoint, Symbols
from allometry.models.transformer.model import Block, Transformer
from allometry.targets.vocabulary import Vocabulary

SLACK = 0.125
"""Largest difference of a construction's outputs, in units, and of the inputs of its neurons:
a quarter of their margins of 0.5."""

MASKED = 2.0**12
"""What the score of a masked key loses at least."""


ARCHITECTURES = ("gpt2", "llama")
"""Architectures that can be asked for."""


def write_folder(
    made: Any,
    folder: Path | str,
    vocabulary: Vocabulary | None = None,
    architecture: str | None = None,
) -> ExportCertificate:
    """Write a stock checkpoint, run it in `transformers`, and compare its answers.

    The folder has `config.json`, `model.safetensors`, `tokenizer.json` and `allometry.json`, the
    certificate. Weights are float32 if then all answers on the samples are equal, and outputs and
    inputs of neurons differ by at most `SLACK`; else float64.

    Args:
        made: A construction or a trained decoder.
        folder: Its folder; created if needed.
        vocabulary: Of a trained decoder.
        architecture: "gpt2" or "llama", of a causal construction. Default: GPT-2, or for heads
            that see later positions BERT or MPNet. A trained decoder has one architecture.

    Raises:
        InputError: No stock architecture has what the model needs, or answers differ in float64.
    """
    folder = Path(folder)
    check_architecture(made, architecture)
    if isinstance(made, Transformer):
        return _write_trained(made, folder, vocabulary)
    described = describe(made)
    truth = _truth(described)
    for precision in ("float32", "float64"):
        checkpoint = constructed(described, precision, architecture)
        theirs, result = _tried(described, checkpoint, truth)
        if _equal(result, described):
            break
    else:
        raise InputError(
            "export.made must give equal answers in float64 as a stock checkpoint; got "
            f"{result.wrong:,} wrong of {result.total:,}. Use to='onnx' or 'safetensors'."
        )
    needs = precision
    if precision == "float32":
        half = _compared(theirs.bfloat16(), described, checkpoint, truth)
        needs = "bfloat16" if _equal(half, described) else needs
    certificate = _certificate(checkpoint, result, described.samples, needs)
    _write(folder, checkpoint, _tokenizer(described.symbols, checkpoint), certificate)
    return certificate


def check_architecture(made: Any, architecture: str | None) -> None:
    """Refuse an architecture that does not exist or that can't be chosen."""
    if architecture is None:
        return
    known = ", ".join(ARCHITECTURES)
    require(architecture in ARCHITECTURES, "architecture", f"be one of {known}", architecture)
    trained = isinstance(made, Transformer)
    fix = "Leave out the architecture."
    require(not trained, "architecture", "be that of a trained model", architecture, fix)


def in_float32(described: Described, architecture: str | None = None) -> Checkpoint:
    """The float32 checkpoint of a construction, if its answers are right in `transformers`.

    Raises:
        InputError: Rounding is too large.
    """
    checkpoint = constructed(described, "float32", architecture)
    _, result = _tried(described, checkpoint, _truth(described))
    if not _equal(result, described):
        raise InputError(
            "export.made must be exact in float32 for this format; got differences of "
            f"{result.inner:.2g} where neurons have margins of 0.5. Use architecture llama, "
            "or to='hf' or 'onnx', which write float64."
        )
    return checkpoint


def constructed(
    described: Described, precision: str, architecture: str | None = None
) -> Checkpoint:
    """The checkpoint of a construction in a precision."""
    model = described.model
    largest = largest_square(model, described.samples)
    scale = described.scale
    if architecture == "llama":
        return llama_construction.constructed(model, largest, described.symbols, scale, precision)
    causal = architecture is None or model.kind == "decoder"
    require(
        causal, "export.made", "be causal for GPT-2", model.kind, "Leave out the architecture."
    )
    if model.kind == "decoder":
        at = layout(model, model.heads, largest, precision, gpt2.EPS)
        return gpt2.constructed(model, at, described.symbols, scale, precision)
    at = layout(model, encoder_models.head_count(model), largest, precision, encoder_models.EPS)
    # A score is a product of two forms of the stream: bounded by its square and the weights.
    masked = 2.0 ** math.ceil(math.log2(MASKED + 4 * scale * max(largest, 1.0)))
    return encoder_models.constructed(model, at, described.symbols, scale, masked, precision)


def trained(model: Transformer, symbols: Symbols) -> Checkpoint:
    """The checkpoint of a trained decoder."""
    block = model.blocks[0]
    assert isinstance(block, Block)
    heads = block.attention
    supported = {
        "be a decoder of tokens": model.kind == "decoder" and model.table is not None,
        "have norms before its parts": block.norm == "pre",
        "have skip connections and softmax": block.skip and heads is not None and not heads.hard,
        "read out its vocabulary without bias": model.readout_bias is None,
    }
    for need, fine in supported.items():
        fix = "Use to='safetensors' otherwise."
        require(fine, "export.model", f"{need} for a stock checkpoint", repr(model)[:40], fix)
    if llama.modern(block):
        return llama.trained(model, symbols)
    if model.positions == "rotary":
        return gpt_neox.trained(model, symbols)
    return gpt2.trained(model, symbols)


def _write_trained(
    model: Transformer, folder: Path, vocabulary: Vocabulary | None
) -> ExportCertificate:
    size = model.vocabulary or 0
    words = [str(i) for i in range(size)] if vocabulary is None else vocabulary.symbols
    symbols = Symbols(words)
    checkpoint = trained(model, symbols)
    files = (
        _tokenizer(symbols, checkpoint)
        if vocabulary is None
        else tokenizer_files.of_vocabulary(vocabulary)
    )
    rng = torch.Generator().manual_seed(0)
    length = min(model.context or 64, 256)
    samples = [
        torch.randint(size, (4, n), generator=rng) for n in (1, max(1, length // 2), length)
    ]

    with tempfile.TemporaryDirectory() as scratch:
        _write(Path(scratch), checkpoint, files, None)
        theirs = load(Path(scratch), checkpoint)
    truth = references(model, samples, inner=False)
    result = compare(theirs, checkpoint, model, truth, lambda out: out)
    if result.wrong:
        raise InputError(
            f"export.model must have equal logits to 1e-4 as a stock checkpoint; got differences "
            f"up to {result.difference:.2g}. Use to='safetensors'."
        )
    certificate = _certificate(checkpoint, result, samples, checkpoint.precision)
    _write(folder, checkpoint, files, certificate)
    return certificate


def _truth(described: Described) -> list[Reference]:
    discrete = described.model.table is not None
    return references(described.model, described.samples, inner=discrete)


def _tried(
    described: Described, checkpoint: Checkpoint, truth: list[Reference]
) -> tuple[Any, Compared]:
    """The checkpoint as loaded by `transformers`, and how it differs from the construction."""
    with tempfile.TemporaryDirectory() as scratch:
        _write(Path(scratch), checkpoint, None, None)
        theirs = load(Path(scratch), checkpoint)
    return theirs, _compared(theirs, described, checkpoint, truth)


def _compared(
    theirs: Any, described: Described, checkpoint: Checkpoint, truth: list[Reference]
) -> Compared:
    model, answer = described.model, described.answer
    return compare(
        theirs, checkpoint, model, truth, answer, lambda found: _equal(found, described)
    )


def _equal(result: Compared, described: Described) -> bool:
    # Answers on samples do not show rounding that the next step function removes, but would not
    # remove on another input: so the inputs of neurons are compared too.
    near = result.difference <= SLACK * described.unit and result.inner <= SLACK
    return result.wrong == 0 and near


def _certificate(
    checkpoint: Checkpoint, result: Compared, samples: list[Tensor], needs: str
) -> ExportCertificate:
    config = checkpoint.config
    return ExportCertificate(
        architecture=config["architectures"][0],
        runtime=runtime(),
        precision=checkpoint.precision,
        needs=needs,
        inputs=sum(len(s) for s in samples),
        answers=result.total,
        wrong=result.wrong,
        difference=result.difference,
        inner=result.inner,
        layers=config.get("n_layer") or config["num_hidden_layers"],
        width=config.get("n_embd") or config["hidden_size"],
        parameters=checkpoint.parameters,
    )


def _tokenizer(symbols: Symbols, checkpoint: Checkpoint) -> tuple[str, str] | None:
    return tokenizer_files.of_symbols(symbols, checkpoint.ids) if checkpoint.ids else None


def _write(
    folder: Path,
    checkpoint: Checkpoint,
    tokenizer: tuple[str, str] | None,
    certificate: ExportCertificate | None,
) -> None:
    make_folder(folder)
    files = {"config.json": json.dumps(checkpoint.config, indent=1)}
    if tokenizer is not None:
        files["tokenizer.json"], files["tokenizer_config.json"] = tokenizer
    if checkpoint.greedy:
        ends = checkpoint.config.get("eos_token_id")
        # Without this file a text-generation pipeline samples.
        settings = {"do_sample": False, "eos_token_id": ends, "_from_model_config": False}
        files["generation_config.json"] = json.dumps(settings, indent=1)
    if certificate is not None:
        about: dict[str, Any] = {"certificate": certificate.to_dict()}
        if checkpoint.inputs is not None:
            about["inputs"] = checkpoint.inputs.tolist()
        files["allometry.json"] = json.dumps(about, indent=1)
    with atomic_write(folder / "model.safetensors", "wb") as file:
        file.write(safetensors.torch.save(dict(checkpoint.weights), {"format": "pt"}))
    for name, content in files.items():
        with atomic_write(folder / name) as file:
            file.write(content)
