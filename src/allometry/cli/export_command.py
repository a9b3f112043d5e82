"""`allometry export`."""

from pathlib import Path
from typing import Annotated

import typer

from allometry._core.errors import InputError, require
from allometry.cli.console import out, say, write_json

FORMATS = ("hf", "gguf", "onnx", "safetensors", "transformer-lens")


def export(
    model: Annotated[
        Path,
        typer.Argument(
            help="A model's .safetensors file, or a study's folder, whose best model is used."
        ),
    ],
    to: Annotated[
        str,
        typer.Option(help="Format: hf, gguf, onnx, safetensors or transformer-lens."),
    ] = "hf",
    out_folder: Annotated[
        Path, typer.Option("--out", help="Folder for the exported files; created if needed.")
    ] = Path("exported"),
    json: Annotated[bool, typer.Option("--json", help="Print the certificate as JSON.")] = False,
) -> None:
    """Export a trained transformer for other programs.

    The folder for Hugging Face is a stock checkpoint: `AutoModelForCausalLM` loads it without
    custom code. Its logits are compared with the original's. For networks with weights from a
    proof use `allometry construct ... --save`.
    """
    require(to in FORMATS, "--to", f"be one of {', '.join(FORMATS)}", to)
    from allometry.construct.stock.export_formats import write
    from allometry.models.transformer.model import Transformer
    from allometry.study import load

    saved = load(model)
    if not isinstance(saved.model, Transformer):
        raise InputError(
            f"{model} must hold a transformer to be exported; got {type(saved.model).__name__}. "
            "In a study's folder, name the .safetensors file of a transformer."
        )
    certificate = write(saved.model, out_folder, to, saved.vocabulary)
    if json:
        write_json(certificate.to_dict() if certificate is not None else {})
    elif certificate is not None:
        out.print(str(certificate), markup=False)
    say(f"Exported: {out_folder}")
