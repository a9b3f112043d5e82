"""Write a model in one of the formats of other programs, into a folder."""

from pathlib import Path
from typing import Any

from allometry._core.errors import require
from allometry._core.files import make_folder
from allometry.construct.export import export
from allometry.construct.stock.equality import ExportCertificate
from allometry.construct.stock.gguf_file import write_gguf
from allometry.construct.stock.hugging_face import write_folder
from allometry.construct.stock.transformer_lens import write_lens
from allometry.targets.vocabulary import Vocabulary


def write(
    made: Any, folder: Path | str, to: str, vocabulary: Vocabulary | None = None
) -> ExportCertificate | None:
    """Write a construction or a trained decoder; return the certificate where there is a check.

    Args:
        made: A construction or a trained decoder.
        folder: The folder for its files.
        to: "hf", "gguf", "onnx", "safetensors" or "transformer-lens".
        vocabulary: Of a trained decoder.
    """
    require(to in WRITERS, "--to", f"be one of {', '.join(WRITERS)}", to)
    return WRITERS[to](made, Path(folder), vocabulary)


def _gguf(made: Any, folder: Path, vocabulary: Vocabulary | None) -> None:
    write_gguf(made, folder, vocabulary)


def _file(name: str, to: str) -> Any:
    def write_file(made: Any, folder: Path, vocabulary: Vocabulary | None) -> None:
        export(made, make_folder(folder) / name, to, vocabulary=vocabulary)

    return write_file


WRITERS: dict[str, Any] = {
    "hf": write_folder,
    "gguf": _gguf,
    "onnx": _file("model.onnx", "onnx"),
    "safetensors": _file("model.safetensors", "safetensors"),
    "transformer-lens": write_lens,
}
"""Writers by format."""
