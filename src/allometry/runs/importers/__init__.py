"""Importers: convert run tables and logs to columns that a law can be fitted to.

Tables (CSV, TSV, JSON lines, Parquet, Excel), a study's folder, and the logs of Hugging Face, W&B,
TensorBoard, MLflow, Lightning, trackio, Keras and others; the format is detected.
"""

from allometry._core.number_parsing import number
from allometry.runs.importers.columns import BadRow, Imported
from allometry.runs.importers.loading import load

__all__ = ["BadRow", "Imported", "load", "number"]
