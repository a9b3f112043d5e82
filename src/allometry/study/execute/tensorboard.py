"""A study's learning curves for TensorBoard."""

from pathlib import Path
from typing import Any, final

from allometry._core.errors import require_extra
from allometry._core.files import make_folder
from allometry.study.execute.driver import Event


@final
class TensorBoardLogger:
    """Write a study's events for TensorBoard: `study.run(..., watch=TensorBoardLogger(folder))`.

    Each run has a folder, named by its key: `train/loss` during training; after it the curve on
    held-out data (`loss`, `tokens`, `flops`) and the size `N`, so that `allometry fit` can read
    the folder.

    Args:
        folder: Of the event files; created if it does not exist.
    """

    def __init__(self, folder: Path | str) -> None:
        require_extra("tensorboard", "tensorboard")
        self.folder = make_folder(folder)
        self.writers: dict[str, Any] = {}

    def __call__(self, event: Event) -> None:
        """Write one event."""
        key = event.task.key
        if event.kind == "progress":
            self._writer(key).add_scalar("train/loss", event.data["loss"], event.data["step"])
        elif event.kind == "done":
            self._curve(key, event.data)
        if event.kind in ("done", "failed", "stopped") and key in self.writers:
            self.writers.pop(key).close()

    def _writer(self, key: str) -> Any:
        if key not in self.writers:
            from torch.utils.tensorboard import SummaryWriter

            self.writers[key] = SummaryWriter(str(self.folder / key))
        return self.writers[key]

    def _curve(self, key: str, data: dict[str, Any]) -> None:
        curve = data["curve"]
        for name in ("loss", "tokens", "flops"):
            for step, value in zip(curve.get("step", []), curve.get(name, []), strict=False):
                self._writer(key).add_scalar(name, value, int(step))
        if curve.get("step"):
            self._writer(key).add_scalar("N", data["columns"]["N"], int(curve["step"][-1]))
