"""Carrying runs out: driver, workers and executors (processes, torchrun, Ray)."""
