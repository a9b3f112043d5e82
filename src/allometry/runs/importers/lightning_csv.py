"""Lightning's CSVLogger: `metrics.csv` and `hparams.yaml` in a folder for each run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from allometry._core.delimited import read_csv
from allometry._core.number_parsing import number
from allometry._core.user_files import read_text
from allometry.runs.importers.run_log import Logs, RunLog, missing
from allometry.runs.importers.yaml_subset import read_settings


def read_folders(files: Sequence[Path], root: Path) -> Logs:
    """One run for each `metrics.csv`."""
    runs = []
    for file in files:
        sheet = read_csv(file)
        points = []
        for i in range(len(sheet.lines)):
            point: dict[str, Any] = {
                name: column[i] for name, column in sheet.cells.items() if not missing(column[i])
            }
            if "step" in point:
                # Steps are numbered from 0: step s was logged after s + 1 updates.
                point["step"] = number(point["step"]) + 1
            points.append(point)
        settings = file.with_name("hparams.yaml")
        config: dict[str, Any] = {}
        if settings.is_file():
            config = read_settings(read_text(settings), str(settings))
        folder = file.parent
        name = str(folder.relative_to(root)) if root in folder.parents else folder.name
        runs.append(RunLog(name, points, config))
    return Logs(runs, "Lightning CSVLogger")
